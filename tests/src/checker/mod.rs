//! The black-box checker: drives the contract with random work, `kill -9` included, and compares
//! every recorded moment byte by byte with a model.
//!
//! What is checked, in every run:
//! 1. The present is what was acknowledged, also after the server was killed: a write that was
//!    not acknowledged is there or not, block by block, and stays as it was found. Of a volume with
//!    a write-back cache a kill may take what was acknowledged and not flushed.
//! 2. A recorded moment reads the same for ever, by seq, time, version, mark and through a view
//!    that is held open, whatever happens to the volume meanwhile.
//! 3. The moments between two recorded ones are whole: each write is in them or not, in an order
//!    that fits what clients saw.
//! 4. Reverts, undone reverts, clones and clones of clones have the bytes of their moment.
//! 5. A diff covers every byte that differs and reports no block that does not; a hole reads zero.
//! 6. Deleting a volume, version or mark changes no other.
//! 7. A change of architecture changes nothing that a client sees.
//! 8. A pool without room says so, keeps what it has, lets versions be deleted, and takes writes
//!    again (`brim`).
//!
//! The model is an [`crate::image::Image`] for each moment. The generator is this module's own and
//! shares nothing with the simulator's, so that one's blind spot is not the other's.

mod brim;
mod changes;
mod looks;
mod past;
mod plan;
mod settle;
mod storm;
mod subject;
mod world;
mod writes;

use std::path::Path;

use anyhow::{Context, Result};

pub use world::Counts;

use world::World;

/// How often a run fills a small pool.
const FILLED: u64 = 2;

/// How one run goes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Random steps in a run.
    pub steps: u64,
    /// Bytes of the largest volume.
    pub volume_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { steps: 60, volume_bytes_max: 16 << 20 }
    }
}

/// One run on a pool of its own; the pool is kept when something is found.
pub fn run(program: &Path, seed: u64, options: Options) -> Result<Counts> {
    let folder = tempfile::Builder::new().prefix("hindsight-checker-").tempdir()?;
    let mut world = World::new(program, &folder.path().join("pool"), seed, options)?;
    match world.run() {
        Ok(()) => {
            let writes = brim::run(program, &folder.path().join("brim"), seed, FILLED)
                .with_context(|| format!("seed {seed}"))?;
            Ok(Counts { writes: writes + world.counts().writes, ..world.counts() })
        }
        Err(error) => {
            let story = world.story();
            let log = world.server_log();
            drop(world);
            let kept = folder.keep();
            Err(error).with_context(|| {
                format!(
                    "seed {seed}: the last steps were\n{story}\nthe server said\n{log}\n\
                     the pool is kept in {}",
                    kept.display()
                )
            })
        }
    }
}
