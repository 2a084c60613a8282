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
//! 9. After a kill, one bit that flips among what was written last is an error, or nothing (`rot`).
//! 10. Verbs that conflict leave what some order of them leaves (`verbs`, `orders`).
//! 11. A clock that jumps expires nothing and changes no time (`clocks`).
//! 12. All of this is the same for clients over iSCSI, beside others over NBD (`link`).
//! 13. Trees of shares over NFS are what clients made of them, over kills; each recorded moment of
//!     one is the same tree by every way to it; restores, repairs and diffs are right (`shares`).
//!
//! The model is an [`crate::image::Image`] for each moment, and of shares a tree. The generator is
//! this module's own and shares nothing with the simulator's, so that one's blind spot is not the
//! other's.

mod brim;
mod changes;
mod clocks;
mod link;
mod looks;
mod orders;
mod past;
mod plan;
mod rot;
mod settle;
mod shares;
mod storm;
mod subject;
mod verbs;
mod world;
mod writes;

use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow};

pub use world::Counts;

use world::World;

/// How often a run fills a small pool.
const FILLED: u64 = 2;

/// What goes on beside the random steps, on a pool of its own: one of these, by the seed modulo
/// their number. Eight runs from seed 1 on have all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A small pool is filled, and emptied of versions.
    Brim,
    /// A bit of the pool flips after a kill.
    Rot,
    /// Verbs that conflict, at one instant.
    Verbs,
    /// The clock jumps.
    Clocks,
    /// Clients of file trees.
    Shares,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 5] = [Part::Brim, Part::Rot, Part::Verbs, Part::Clocks, Part::Shares];

    fn run(self, program: &Path, folder: &Path, seed: u64) -> Result<Counts> {
        match self {
            Part::Brim => brim::run(program, &folder.join("brim"), seed, FILLED),
            Part::Rot => rot::run(program, &folder.join("rot"), seed),
            Part::Verbs => verbs::run(program, &folder.join("verbs"), seed),
            Part::Clocks => clocks::run(program, &folder.join("clocks"), seed),
            Part::Shares => shares::run(program, &folder.join("shares"), seed),
        }
    }
}

impl std::str::FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Part> {
        let of_name = |part: &&Part| format!("{part:?}").eq_ignore_ascii_case(text);
        let part = Part::ALL.iter().find(of_name).copied();
        part.ok_or_else(|| anyhow!("no such part: {text}; there are {:?}", Part::ALL))
    }
}

/// How one run goes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Only this part, and no random steps.
    pub only: Option<Part>,
    /// Random steps in a run.
    pub steps: u64,
    /// Bytes of the largest volume.
    pub volume_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { only: None, steps: 60, volume_bytes_max: 16 << 20 }
    }
}

/// One run on pools of its own, which are kept when something is found.
pub fn run(program: &Path, seed: u64, options: Options) -> Result<Counts> {
    let folder = tempfile::Builder::new().prefix("hindsight-checker-").tempdir()?;
    let part = options.only.unwrap_or(Part::ALL[usize::try_from(seed)? % Part::ALL.len()]);
    let outcome = thread::scope(|scope| {
        let beside = scope.spawn(|| part.run(program, folder.path(), seed));
        let world = match options.only {
            None => walk(program, folder.path(), seed, options),
            Some(_) => Ok(Counts::default()),
        };
        let beside = beside.join().map_err(|_| anyhow!("a panic of the checker"));
        let mut counts = world?;
        counts += beside.flatten().with_context(|| format!("the part {part:?}"))?;
        Ok(counts)
    });
    outcome.map_err(|error: anyhow::Error| {
        let kept = folder.keep();
        error.context(format!("seed {seed}: pools and logs are kept in {}", kept.display()))
    })
}

/// Random steps on one pool.
fn walk(program: &Path, folder: &Path, seed: u64, options: Options) -> Result<Counts> {
    let mut world = World::new(program, &folder.join("pool"), seed, options)?;
    let outcome = world.run();
    outcome.with_context(|| {
        format!("the last steps were\n{}\nthe server said\n{}", world.story(), world.server_log())
    })?;
    Ok(world.counts())
}
