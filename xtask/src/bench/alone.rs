//! What the server does when nobody else wants the devices, against reading a file from its
//! beginning to its end: what a device gives at best.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;

/// Bytes read at a time from the file.
const PART_BYTES: usize = 1 << 20;

/// Has the kernel forget what it has of files; needs root.
pub fn forget_pages() -> Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("only root can empty the page cache")
}

/// Reads so much of a file, which zones fill from the lowest on; MB a second.
pub fn read_file(path: &Path, bytes: u64) -> Result<f64> {
    let file = File::open(path).context("a member's file")?;
    let mut part = vec![0; PART_BYTES];
    let began = Instant::now();
    let mut read = 0;
    while read < bytes {
        let count = file.read_at(&mut part, read)?;
        ensure!(count > 0, "the file ends at {read}");
        read += count as u64;
    }
    Ok(read as f64 / 1e6 / began.elapsed().as_secs_f64())
}

/// Reads so much of each of these files, writes as much to a new one and makes it durable, one
/// piece after the other: MB a second of what is written.
pub fn copy_files(paths: &[PathBuf], to: &Path, bytes: u64) -> Result<f64> {
    let opened = |path: &PathBuf| File::open(path).context("a member's file");
    let files = paths.iter().map(opened).collect::<Result<Vec<_>>>()?;
    let copy = File::create(to).context("the copy")?;
    let mut part = vec![0; PART_BYTES];
    let began = Instant::now();
    let mut done = 0;
    while done < bytes {
        let mut count = 0;
        for file in &files {
            count = file.read_at(&mut part, done)?;
            ensure!(count > 0, "a file ends at {done}");
        }
        copy.write_all_at(&part[..count], done)?;
        done += count as u64;
    }
    copy.sync_data()?;
    Ok(done as f64 / 1e6 / began.elapsed().as_secs_f64())
}

/// Seconds between two times that the server told: what it took itself, whatever the command that
/// waited for it took to see the end.
pub fn seconds_between(began: &Value, ended: &Value) -> Result<f64> {
    let time = |value: &Value| -> Result<Timestamp> {
        let text = value.as_str().with_context(|| format!("{value} is no time"))?;
        text.parse().with_context(|| format!("{text} is no time"))
    };
    let seconds = time(ended)?.duration_since(time(began)?).as_secs_f64();
    ensure!(seconds > 0.0, "from {began} to {ended}: nothing was measured");
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::seconds_between;

    #[test]
    fn times_of_the_server_are_told_apart_to_the_nanosecond_and_across_midnight() {
        let began = json!("2026-11-22T23:59:59.750000001Z");
        let ended = json!("2026-11-23T00:00:01.250000001Z");
        let seconds = seconds_between(&began, &ended).expect("times");
        assert!((seconds - 1.5).abs() < 1e-9, "{seconds}");
        assert!(seconds_between(&ended, &began).is_err(), "it ended before it began");
        assert!(seconds_between(&began, &json!(null)).is_err(), "it has not ended");
    }
}
