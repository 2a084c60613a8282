//! Work that goes on while a pool on several members is served.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use block::Standing;
use volume::Pool;

use crate::member_changes;

/// How long marks on regions stay after the last write there, at least, where they are few.
const TIDY_EVERY: Duration = Duration::from_secs(5);

/// Keeps the marks on the members' regions few, and tells of members that are not in.
pub(crate) struct MemberWatch {
    dir: PathBuf,
    tidied: Instant,
    outs: Vec<String>,
}

impl MemberWatch {
    /// Watches the members of the pool in a directory.
    pub(crate) fn new(dir: PathBuf) -> MemberWatch {
        MemberWatch { dir, tidied: Instant::now(), outs: Vec::new() }
    }

    /// Does what is due.
    pub(crate) fn look(&mut self, pool: &Pool) {
        let is_due = self.tidied.elapsed() >= TIDY_EVERY;
        if !is_due && !pool.has_many_marks() {
            return;
        }
        let tidied = if is_due { pool.tidy_members() } else { pool.tidy_members_early() };
        if let Err(error) = tidied {
            tracing::error!(%error, "the marks of members could not be written");
        }
        if !is_due {
            return;
        }
        self.tidied = Instant::now();
        if let Err(error) = member_changes::follow_spares(&self.dir, pool) {
            tracing::error!(%error, "pool.stack does not say that a spare is a member");
        }
        let members = pool.members().into_iter();
        let outs: Vec<String> =
            members.filter(|m| m.standing == Standing::Out).map(|m| m.path).collect();
        for member in outs.iter().filter(|path| !self.outs.contains(path)) {
            tracing::error!(member, "a member of the pool is out; see `hindsight pool audit`");
        }
        for member in self.outs.iter().filter(|path| !outs.contains(path)) {
            tracing::info!(member, "a member of the pool is in use again");
        }
        self.outs = outs;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use block::{Array, BlockDevice, Candidate, Layout, MemoryDevice};
    use env::NoFiles;
    use volume::{PoolOptions, VolumeSpec, WriteOp};

    use super::{MemberWatch, Pool};
    use crate::pool_dir::machine;
    use crate::stack_files::{make, with_materials};

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_a_fast_writer_marks_is_taken_off_long_before_seconds_are_over() {
        let layout: Layout = "mirror(a, b)".parse().expect("a stack");
        let device = || -> Arc<dyn BlockDevice> { Arc::new(MemoryDevice::new(1 << 30)) };
        let devices = ["a", "b"].map(|path| (path.to_owned(), device()));
        make(&layout, &devices).expect("made");
        let candidates =
            devices.map(|(path, device)| Candidate { path, device: Some(device) }).into();
        let pool = with_materials(|materials| {
            let opening = Array::prepare(candidates, materials).expect("both are there");
            let options = PoolOptions { memory_bytes: 0 };
            Pool::open_members(opening, machine(), options, Arc::new(NoFiles), &mut |_| ())
        });
        let pool = pool.expect("opened");
        let spec = VolumeSpec { window_ns: 1 << 60, ..VolumeSpec::new("v", 512 * MIB) };
        let volume = pool.create_volume(&spec).expect("made");
        let mut watch = MemberWatch::new("/".into());
        watch.look(&pool);
        let mut places = (0..).map(|number| number * MIB);
        let mut write = |bytes: u64| {
            for offset in places.by_ref().take((bytes / MIB) as usize) {
                let op = WriteOp::Data { offset, bytes: &[7; MIB as usize] };
                volume.write_batch(&[op]).expect("written");
            }
        };
        write(32 * MIB);
        assert!(!pool.has_many_marks());
        write(192 * MIB);
        assert!(pool.has_many_marks());
        // Nothing is written again: all of it comes to rest.
        watch.look(&pool);
        assert!(!pool.has_many_marks());
        write(32 * MIB);
        assert!(!pool.has_many_marks(), "little came since");
        write(192 * MIB);
        assert!(pool.has_many_marks());
    }
}
