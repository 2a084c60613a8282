//! The crate's tests: a model file system beside the real one, every prefix of every short history,
//! big things, permissions, damage.

mod crashes;
mod damage;
mod differences;
mod directories;
mod engine;
mod faults;
mod files;
mod histories;
mod imports;
mod memory;
mod permissions;
mod repair;
mod repair_oracle;
mod repair_reads;
mod restores;
mod transactions;
mod world;

use hindsight_share as share;
use sim::posix as model;
