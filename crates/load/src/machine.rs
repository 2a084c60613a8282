//! What the machine says: processor time, what is under a directory, how fast it computes
//! checksums.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Processor time of a process so far, this one if none is named, all its threads, in seconds; to a
/// tick of the kernel's, mostly 10 ms. `None` where `/proc` is not there.
#[must_use]
pub fn cpu_seconds(process: Option<u32>) -> Option<f64> {
    const UTIME: usize = 11;
    let stat = match process {
        Some(process) => fs::read_to_string(format!("/proc/{process}/stat")),
        None => fs::read_to_string("/proc/self/stat"),
    };
    let stat = stat.ok()?;
    // The second field is a name in brackets, which may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks: u64 =
        fields.get(UTIME)?.parse::<u64>().ok()? + fields.get(UTIME + 1)?.parse::<u64>().ok()?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// What a directory is on: the file system's type, its device, and whether that turns.
#[must_use]
pub fn device_of(dir: &Path) -> String {
    let unknown = || "not known".to_owned();
    let Ok(found) = fs::metadata(dir) else { return unknown() };
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let of_it = |line: &&str| line.split(' ').nth(2) == Some(&format!("{major}:{minor}"));
    let Some(line) = mounts.lines().find(of_it) else { return unknown() };
    let Some((_, after)) = line.split_once(" - ") else { return unknown() };
    let mut fields = after.split(' ');
    let (kind, source) = (fields.next().unwrap_or("-"), fields.next().unwrap_or("-"));
    let block = format!("/sys/dev/block/{major}:{minor}");
    // A partition has no queue of its own.
    let turns = [format!("{block}/queue/rotational"), format!("{block}/../queue/rotational")];
    let turns = turns.iter().find_map(|path| fs::read_to_string(path).ok());
    let device = match turns.as_deref().map(str::trim) {
        Some("0") => "a device that does not turn",
        Some("1") => "a device that turns, or says that it does",
        _ => "no block device",
    };
    format!("{kind} on {source}, {device}")
}

/// Nanoseconds that the checksum of a block of 4 KiB takes here, at its fastest: what waits for the
/// processor meanwhile is not the checksum's.
#[must_use]
pub fn checksum_ns() -> f64 {
    const BLOCK: usize = 4096;
    const BLOCKS: usize = 64;
    const TIME: Duration = Duration::from_millis(50);
    let bytes: Vec<u8> = (0..BLOCK * BLOCKS).map(|n| (n * 31) as u8).collect();
    let (began, mut fastest) = (Instant::now(), Duration::MAX);
    while began.elapsed() < TIME {
        let turn = Instant::now();
        for block in bytes.chunks_exact(BLOCK) {
            std::hint::black_box(format::checksum::block_crc(std::hint::black_box(block)));
        }
        fastest = fastest.min(turn.elapsed());
    }
    fastest.as_nanos() as f64 / BLOCKS as f64
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_machine_is_told() {
        assert!(super::cpu_seconds(None).is_some_and(|seconds| seconds >= 0.0));
        let own = super::cpu_seconds(Some(std::process::id()));
        assert!(own >= super::cpu_seconds(None).map(|seconds| seconds - 1.0), "{own:?}");
        assert_eq!(super::cpu_seconds(Some(u32::MAX)), None);
        assert_ne!(super::device_of(Path::new("/")), "");
        assert_eq!(super::device_of(Path::new("/nonexistent")), "not known");
        assert!(super::checksum_ns() > 0.0);
    }
}
