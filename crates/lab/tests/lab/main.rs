//! The laboratory from outside: every format it reads, what it writes, what it generates and what
//! the model says, against dull oracles.

mod changing;
mod damage;
mod experiments;
mod generators;
mod model;
mod reading;
mod traces;
