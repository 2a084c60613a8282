//! Streams into and out of a volume: standard input and output, pipes, and character devices.
//!
//! A stream cannot say how long it is, so an import is told (`--size`, or the size of the volume
//! that it overwrites), and a stream of any other length fails.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use wire::nbd::Command;

use crate::failure::Failure;
use crate::nbd::{Address, Export};

/// Bytes of a request: few round trips, and below the server's limit of 32 MiB.
const CHUNK_BYTES: usize = 4 << 20;

/// Whether a path names a stream: `-`, or what can only be read or written from front to back.
pub fn is_one(file: &Path) -> io::Result<bool> {
    use std::os::unix::fs::FileTypeExt;
    if file == Path::new("-") {
        return Ok(true);
    }
    match file.metadata() {
        Ok(about) => {
            let kind = about.file_type();
            Ok(kind.is_fifo() || kind.is_char_device() || kind.is_socket())
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Writes a stream of exactly `size_bytes` to the export at `uri`, and flushes.
pub fn import(file: &Path, uri: &str, size_bytes: u64) -> anyhow::Result<()> {
    let mut export = open(uri)?;
    let mut input = input(file)?;
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    let mut offset = 0;
    // Pipes give a little at a time.
    while input.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk)? > 0 {
        let end = offset + chunk.len() as u64;
        if end > size_bytes {
            return Err(another_length("more than", size_bytes).into());
        }
        export.write(offset, &chunk)?;
        offset = end;
        chunk.clear();
    }
    if offset < size_bytes {
        return Err(another_length(&format!("{offset} bytes, not"), size_bytes).into());
    }
    export.ask(Command::Flush, 0, 0)
}

/// The bytes of a stream, or of a file, to be read.
pub fn input(file: &Path) -> Result<Box<dyn Read>, Failure> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let cannot = |error| Failure::new(format!("cannot read {}: {error}", file.display()));
    Ok(Box::new(File::open(file).map_err(cannot)?))
}

/// What is written to a stream.
pub fn output(file: &Path) -> io::Result<Box<dyn Write>> {
    Ok(match file == Path::new("-") {
        true => Box::new(io::stdout().lock()),
        false => Box::new(File::options().write(true).open(file)?),
    })
}

/// Writes the export at `uri` to a stream.
pub fn export(file: &Path, uri: &str) -> anyhow::Result<()> {
    let mut export = open(uri)?;
    let size_bytes = export.size_bytes;
    let mut output = output(file)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < size_bytes {
        let length = (size_bytes - offset).min(CHUNK_BYTES as u64) as usize;
        export.fetch(offset, &mut chunk[..length])?;
        output.write_all(&chunk[..length]).map_err(|e| incomplete(offset, &e))?;
        offset += length as u64;
    }
    Ok(output.flush().map_err(|e| incomplete(offset, &e))?)
}

/// Opens the export at `uri`.
pub fn open(uri: &str) -> anyhow::Result<Export> {
    uri.parse::<Address>().map_err(Failure::new)?.open()
}

fn another_length(found: &str, size_bytes: u64) -> Failure {
    Failure::new(format!("the stream has {found} {size_bytes} bytes"))
        .with_hint("a volume is imported from a stream of exactly its size: see --size")
}

/// A closed pipe ends other commands in silence; here it means that data is missing.
fn incomplete(offset: u64, error: &io::Error) -> Failure {
    Failure::new(format!("the stream could not be written after byte {offset}: {error}"))
}
