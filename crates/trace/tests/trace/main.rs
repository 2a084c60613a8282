//! Traces from outside: every format that is read, what is written and generated, and what the
//! model says of it, against dull oracles.

mod changing;
mod damage;
mod generators;
mod model;
mod native;
#[path = "../../../format/tests/format/page.rs"]
mod page;
mod reading;
mod traces;

use format::field::Field;
