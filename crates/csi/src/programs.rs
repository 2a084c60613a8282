//! Programs of the machine that are run, and what is mounted.

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

/// Runs a program to its end: its exit code, and what it printed on both.
pub fn ended(program: &str, arguments: &[&str]) -> Result<(Option<i32>, String, String), Status> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).env("LC_ALL", "C");
    let ran = command.output();
    let ran = ran.map_err(|error| Status::internal(format!("{program}: {error}")))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((ran.status.code(), text(ran.stdout), text(ran.stderr)))
}

/// A path as an argument.
pub fn text(path: &Path) -> Result<&str, Status> {
    path.to_str().ok_or_else(|| Status::invalid_argument("a path is no UTF-8"))
}

/// Whether something is mounted at a path.
pub fn is_mounted(path: &Path) -> Result<bool, Status> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| Status::internal(format!("/proc/self/mountinfo: {error}")))?;
    let wanted = text(path)?;
    Ok(mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(|at| unescaped(at) == wanted))
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
