//! What `hindsight` and `hindsight-lab` have on a terminal alike: data on standard output, talk on
//! standard error, a failure as one `error:` line, a `hint:` line where there is one, and the exit
//! code of the contract.
//!
//! It knows neither the engine nor the server.
//!
//! The index of what is here:
//! - `session`: `Session` (`client`, `answer`, `confirm`), `say`; `failure`: `Failure`, `report`.
//! - `output`: tables and numbers; `arguments`: sizes and spans; `traces`: traces to read.
//! - `nbd`: a client of one export; `program`: the other program of the two.
//! - `help`, `complete`: endings of pages, and completion, off the definition of a command line.

pub mod arguments;
pub mod complete;
pub mod failure;
pub mod help;
pub mod nbd;
pub mod output;
pub mod program;
pub mod session;
pub mod traces;
