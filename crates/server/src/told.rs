//! The report of a hook's `before` on its standard output: the files that are open on the data it
//! makes quiet. Unknown lines are passed over.
//!
//! Nothing here waits for the end of the output: a process that `before` leaves behind may have it,
//! too, and keeps it until `after` has run.

use std::io::{ErrorKind, Read};
use std::process::ChildStdout;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use volume::OpenFiles;

/// Begins a line with the path of a file that is open.
const OPEN_FILE: &[u8] = b"open-file ";
/// Begins a line with how many files are open, those beyond the ones that are named included.
const OPEN_FILES: &[u8] = b"open-files ";
/// Bytes of a line; the rest of a longer one is passed over.
const LINE_BYTES_MAX: usize = 8 << 10;
/// Bytes that are read at a time at most: more than a pipe holds.
const READ_BYTES_MAX: usize = 1 << 20;

/// The standard output of a command that runs, or ran.
#[derive(Debug)]
pub(crate) struct Told {
    output: ChildStdout,
    lines: Lines,
}

impl Told {
    /// Begins to listen.
    pub(crate) fn new(output: ChildStdout) -> std::io::Result<Told> {
        fcntl_setfl(&output, fcntl_getfl(&output)? | OFlags::NONBLOCK)?;
        Ok(Told { output, lines: Lines::default() })
    }

    /// Takes what there is.
    pub(crate) fn listen(&mut self) {
        let mut buffer = [0; 16 << 10];
        let mut left = READ_BYTES_MAX;
        while left > 0 {
            match self.output.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    self.lines.take(&buffer[..count]);
                    left = left.saturating_sub(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nothing more for now, or ever.
                Err(_) => return,
            }
        }
    }

    /// The report of open files; `None` without one.
    pub(crate) fn open_files(&self) -> Option<OpenFiles> {
        self.lines.open_files()
    }
}

/// Lines, as they come.
#[derive(Debug, Default)]
struct Lines {
    /// The line that is not at its end.
    line: Vec<u8>,
    files: Option<OpenFiles>,
    /// How many files there are, as far as that was told.
    count: Option<u64>,
}

impl Lines {
    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let is_end = part.ends_with(b"\n");
            let part = part.strip_suffix(b"\n").unwrap_or(part);
            let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if is_end {
                self.end();
            }
        }
    }

    fn end(&mut self) {
        let line = std::mem::take(&mut self.line);
        if let Some(path) = line.strip_prefix(OPEN_FILE) {
            self.files.get_or_insert_default().add(&String::from_utf8_lossy(path));
        } else if let Some(count) = line.strip_prefix(OPEN_FILES) {
            let count = std::str::from_utf8(count).ok().and_then(|text| text.trim().parse().ok());
            self.count = count.or(self.count);
        }
    }

    fn open_files(&self) -> Option<OpenFiles> {
        let mut files = match (&self.files, self.count) {
            (None, None) => return None,
            (files, _) => files.clone().unwrap_or_default(),
        };
        files.count = files.count.max(self.count.unwrap_or(0));
        Some(files)
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    fn told(output: &[u8]) -> Option<(u64, Vec<String>)> {
        let mut lines = Lines::default();
        // In pieces, as a pipe may give them.
        output.chunks(7).for_each(|part| lines.take(part));
        lines.open_files().map(|files| (files.count, files.paths))
    }

    #[test]
    fn lines_of_open_files_are_taken_and_others_passed_over() {
        assert_eq!(told(b""), None);
        assert_eq!(told(b"frozen\nopen-file\n"), None);
        assert_eq!(told(b"open-files 0\n"), Some((0, Vec::new())));
        let both = b"open-file /a b\nthawed\nopen-file /\xff\nopen-files 1\n";
        assert_eq!(told(both), Some((2, vec!["/a b".to_owned(), "/\u{fffd}".to_owned()])));
        assert_eq!(told(b"open-files 9\nopen-file /a\nopen-file /b"), Some((9, vec!["/a".into()])));
        assert_eq!(told(b"open-files many\n"), None);
    }

    #[test]
    fn what_is_too_much_is_counted_only() {
        let mut output = b"open-file /".repeat(100_000);
        output.extend_from_slice(b"\nopen-file /x\n");
        let (count, paths) = told(&output).expect("told");
        assert_eq!((count, paths), (2, vec!["/x".to_owned()]), "a line of a megabyte");
        let many: Vec<u8> =
            (0..3000).flat_map(|n| format!("open-file /{n}\n").into_bytes()).collect();
        let (count, paths) = told(&many).expect("told");
        assert_eq!((count, paths.len()), (3000, 1000));
    }
}
