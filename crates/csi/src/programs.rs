//! Programs of the machine that are run, and what is mounted.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tonic::Status;

/// Runs a program to its end; what it printed.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, Status> {
    let (code, out, err) = ended(program, arguments)?;
    match code {
        Some(0) => Ok(out),
        code => {
            let code = code.map_or("a signal".to_owned(), |code| code.to_string());
            let said = err.trim();
            Err(Status::internal(format!("{program} {}: {code}: {said}", arguments.join(" "))))
        }
    }
}

/// How long a program may take, in seconds: mkfs of a large disk is among them.
const PATIENCE: &str = "600";
/// timeout(1) says so of a program that it ended.
const LATE: i32 = 124;

/// Runs a program to its end, within its time: its exit code, and what it printed on both.
pub fn ended(program: &str, arguments: &[&str]) -> Result<(Option<i32>, String, String), Status> {
    let mut command = Command::new("timeout");
    command.args([PATIENCE, program]).args(arguments).stdin(Stdio::null()).env("LC_ALL", "C");
    let ran = command.output();
    let ran = ran.map_err(|error| Status::internal(format!("timeout {program}: {error}")))?;
    if ran.status.code() == Some(LATE) {
        return Err(Status::deadline_exceeded(format!("{program} does not come to its end")));
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((ran.status.code(), text(ran.stdout), text(ran.stderr)))
}

/// A path as an argument.
pub fn text(path: &Path) -> Result<&str, Status> {
    path.to_str().ok_or_else(|| Status::invalid_argument("a path is no UTF-8"))
}

/// What is mounted: the numbers of its device, and where.
fn mounts() -> Result<Vec<(String, String)>, Status> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| Status::internal(format!("/proc/self/mountinfo: {error}")))?;
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(2);
        let device = words.next()?.to_owned();
        Some((device, unescaped(words.nth(1)?)))
    };
    Ok(mounts.lines().filter_map(mount).collect())
}

/// The numbers of the device that is mounted last at a path; none if nothing is.
pub fn mounted_at(path: &Path) -> Result<Option<String>, Status> {
    // As the kernel has it: without links, and without a slash at its end.
    let known = path.canonicalize();
    let wanted = text(known.as_deref().unwrap_or(path))?;
    let mut there = mounts()?.into_iter().filter(|(_, at)| at == wanted);
    Ok(there.next_back().map(|(device, _)| device))
}

/// Whether something is mounted at a path.
pub fn is_mounted(path: &Path) -> Result<bool, Status> {
    Ok(mounted_at(path)?.is_some())
}

/// Where a device is mounted, anywhere.
pub fn place_of(device: &str) -> Result<Option<String>, Status> {
    Ok(mounts()?.into_iter().find(|(known, _)| known == device).map(|(_, at)| at))
}

/// The numbers of a disk, as mountinfo has them.
pub fn numbers_of(disk: &Path) -> Result<String, Status> {
    let known = std::fs::metadata(disk);
    let known = known.map_err(|error| Status::internal(format!("{}: {error}", disk.display())))?;
    let (major, minor) = (rustix::fs::major(known.rdev()), rustix::fs::minor(known.rdev()));
    Ok(format!("{major}:{minor}"))
}

/// A path of mountinfo, in which blanks and such are octal numbers.
fn unescaped(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind.get(..3).and_then(|octal| std::str::from_utf8(octal).ok());
        match octal.and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Takes away what is mounted at a path, if something is.
pub fn unmount(path: &Path) -> Result<(), Status> {
    while is_mounted(path)? {
        run("umount", &[text(path)?])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn blanks_of_paths_are_octal() {
        assert_eq!(unescaped("/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescaped("/a\\04"), "/a\\04");
        assert_eq!(unescaped("/plain"), "/plain");
    }
}
