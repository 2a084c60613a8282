//! `hindsight volume import` and `export`: raw and qcow2 images, copied by `qemu-img` over NBD, and
//! streams of raw bytes.
//!
//! An export is of one fixed moment even while the volume is written, and the file gets its name
//! only when it is whole.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use api::{
    Client, CreateMark, CreateVersion, CreateVolume, DeleteQuery, ExitCode, ImportVolume,
    SizeInput, UNFINISHED_IMPORT, Volume,
};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::json;
use units::{Moment, Seq, Size};

use crate::failure::Failure;
use crate::moment;
use crate::output::human;
use crate::session::{Session, say};
use crate::stream;

/// The smallest volume, in bytes; smaller images are rounded up.
const VOLUME_BYTES_MIN: u64 = 4096;
/// A volume's size is a multiple of this, in bytes.
const VOLUME_BYTES_GRAIN: u64 = 512;

/// Forms of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The bytes, one after another.
    Raw,
    /// QEMU's image format.
    Qcow2,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("onto").args(["overwrite", "diff"]))]
pub struct ImportArgs {
    /// Name of the new volume; it gets the image's size.
    pub name: String,
    /// The image: a file, a block device, or a stream of raw bytes (a pipe, or - for standard
    /// input).
    pub file: PathBuf,
    /// Form of the image [default: what it looks like; of a stream: raw].
    #[arg(long)]
    format: Option<Format>,
    /// How long a stream is, which becomes the size of the new volume.
    #[arg(long, conflicts_with = "lazy")]
    size: Option<Size>,
    /// Write to a volume that exists and has the image's size. A version keeps its present, and
    /// the command that undoes the import is printed.
    #[arg(long)]
    overwrite: bool,
    /// The file is a stream of changes (`volume export --since`). The volume must have the content
    /// that it was made for; a version keeps that, and the command that undoes it is printed.
    #[arg(long, conflicts_with_all = ["format", "size", "lazy"])]
    pub(super) diff: bool,
    /// Write to a volume although clients are attached to it.
    #[arg(long, requires = "onto")]
    pub force: bool,
    /// Serve a new volume at once and copy later: until then the server reads the file where it
    /// lies. Raw images and block devices only; nobody may write to them meanwhile.
    #[arg(long, conflicts_with = "overwrite")]
    lazy: bool,
}

#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// The volume, or a moment of it.
    #[arg(value_name = "NAME[@MOMENT]")]
    pub source: String,
    /// The image to write, which must not exist; or a pipe, or - for standard output.
    pub file: PathBuf,
    /// Form of the image [default: qcow2 for .qcow2; raw for .raw, .img, .bin, .dd, .iso, names
    /// without an ending, and streams].
    #[arg(long)]
    pub format: Option<Format>,
    /// Only what changed since this moment, as a stream for `volume import --diff`; `nothing` is
    /// all of it.
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub since: Option<String>,
    /// Replace the file if it exists.
    #[arg(long)]
    overwrite: bool,
}

/// What `qemu-img info --output=json` says that we need.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ImageInfo {
    virtual_size: u64,
    format: String,
    backing_filename: Option<String>,
    format_specific: Option<FormatSpecific>,
}

/// What is said of qcow2 alone.
#[derive(Debug, Deserialize)]
struct FormatSpecific {
    #[serde(default)]
    data: Qcow2Info,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Qcow2Info {
    data_file: Option<String>,
}

/// Where an import's bytes come from.
enum Content {
    Image(ImageInfo),
    Stream,
}

pub fn import(session: &Session, args: &ImportArgs) -> anyhow::Result<()> {
    if args.lazy {
        return import_lazily(session, args);
    }
    let content = content(args)?;
    let client = session.client()?;
    let existing = api::found(client.volume(&args.name))?;
    let size = size_of(&content, args, existing.as_ref())?;
    // What an import left that was interrupted holds nothing but a part of an image.
    let is_new = existing.as_ref().is_none_or(|volume| volume.unfinished_import);
    let is_zero = existing.is_none();
    let volume = match existing {
        Some(volume) => {
            may_overwrite(&volume, args, size)?;
            volume
        }
        None => begin(&client, &args.name, size)?,
    };
    let copied = uri(&volume, "").and_then(|uri| {
        if !is_new {
            keep_present(&client, &args.name)?;
        }
        match &content {
            Content::Image(image) => copy_in(args, image, &uri, is_zero),
            Content::Stream => stream::import(&args.file, &uri, size),
        }
    });
    if let Err(error) = copied {
        let now = DeleteQuery { force: true, now: true, ..DeleteQuery::default() };
        if is_new && client.remove_volume(&args.name, &now).is_err() {
            say(&format!("{} was created and holds part of the image", args.name));
        }
        return Err(error);
    }
    if is_new {
        client.delete_mark(&args.name, UNFINISHED_IMPORT)?;
    }
    let volume = client.volume(&args.name)?;
    say(&format!("imported {} into {}", args.file.display(), args.name));
    session.answer(&volume, crate::volume_text::show)
}

/// Makes the volume of an import, and says of it that it is not complete.
pub fn begin(client: &Client, name: &str, size: u64) -> anyhow::Result<Volume> {
    let volume = create(client, name, size)?;
    let mark = CreateMark { name: UNFINISHED_IMPORT.to_owned(), at: None, pin: false };
    client.create_mark(name, &mark)?;
    Ok(volume)
}

fn content(args: &ImportArgs) -> anyhow::Result<Content> {
    if !stream::is_one(&args.file)? {
        if args.size.is_some() {
            return Err(Failure::usage("--size is for streams: an image says its size").into());
        }
        return inspect(&args.file, args.format).map(Content::Image);
    }
    if args.format == Some(Format::Qcow2) {
        return Err(Failure::usage("a stream is raw: qcow2 is not read from front to back").into());
    }
    Ok(Content::Stream)
}

/// Bytes of the volume that an import fills.
fn size_of(content: &Content, args: &ImportArgs, existing: Option<&Volume>) -> anyhow::Result<u64> {
    match content {
        Content::Image(image) => {
            Ok(image.virtual_size.max(VOLUME_BYTES_MIN).next_multiple_of(VOLUME_BYTES_GRAIN))
        }
        Content::Stream => {
            let given = args.size.map(|size| size.0);
            given.or(existing.map(|volume| volume.size)).ok_or_else(|| {
                Failure::usage("a stream does not say how long it is")
                    .with_hint("give the size of the new volume: --size 10GiB")
                    .into()
            })
        }
    }
}

/// Refuses a volume that exists unless the whole of it is to become the image.
fn may_overwrite(volume: &Volume, args: &ImportArgs, size: u64) -> anyhow::Result<()> {
    let name = &args.name;
    if !args.overwrite && !volume.unfinished_import {
        return Err(Failure::new(format!("there is a volume {name} already"))
            .with_hint("give another name; --overwrite replaces its content, which can be undone")
            .into());
    }
    if volume.size != size {
        let (has, needs) = (human(volume.size), human(size));
        return Err(Failure::new(format!("{name} has {has}, the image {needs}"))
            .with_hint(format!("hindsight volume resize {name} {size}, or give another name"))
            .into());
    }
    may_be_written(volume, args.force)
}

/// Refuses a volume that clients are attached to, unless it is forced.
pub fn may_be_written(volume: &Volume, force: bool) -> anyhow::Result<()> {
    if volume.clients > 0 && !force {
        return Err(Failure {
            code: ExitCode::Busy,
            message: format!("clients are attached to {}", volume.name),
            hint: Some("disconnect them, or force it (--force)".to_owned()),
        }
        .into());
    }
    Ok(())
}

/// Captures what is about to be overwritten and prints how to get it back. A version is retained
/// whatever the volume's granularity is, and an import that is interrupted can be undone as well.
pub fn keep_present(client: &Client, name: &str) -> anyhow::Result<u64> {
    let label = Some("before import".to_owned());
    let version =
        client.create_version(name, &CreateVersion { label, hook: Some("none".to_owned()) })?;
    let number = version.number;
    say(&format!("version {number} keeps the present of {name}"));
    say(&format!("to undo: hindsight revert {name} --to v:{number}"));
    Ok(number)
}

/// Has `qemu-img` write the image to a volume.
fn copy_in(args: &ImportArgs, image: &ImageInfo, uri: &str, is_zero: bool) -> anyhow::Result<()> {
    let mut command = convert();
    command.args(["-n", "-W", "-f", &image.format, "-O", "raw"]);
    if is_zero {
        command.arg("--target-is-zero");
    }
    command.arg(operand(&args.file)).arg(uri);
    run(command, "importing")
}

/// Names the file to the server, which reads it from there.
fn import_lazily(session: &Session, args: &ImportArgs) -> anyhow::Result<()> {
    let file = match std::fs::canonicalize(&args.file) {
        Ok(file) => file,
        Err(e) => {
            return Err(Failure::new(format!("{}: {e}", args.file.display())).into());
        }
    };
    let Some(path) = file.to_str() else {
        return Err(Failure::new(format!("{} is not a name in UTF-8", file.display()))
            .with_hint("rename it, or import by copying (without --lazy)")
            .into());
    };
    let volume = session.client()?.import_volume(&ImportVolume {
        name: args.name.clone(),
        file: path.to_owned(),
        format: args.format.map(|format| format.name().to_owned()),
        ..ImportVolume::default()
    })?;
    say(&format!(
        "{} is served; {path} is copied in the background: do not write to it until `hindsight \
         volume show {}` tells of no import any more",
        args.name, args.name
    ));
    session.answer(&volume, crate::volume_text::show)
}

fn create(client: &Client, name: &str, size: u64) -> anyhow::Result<Volume> {
    Ok(client.create_volume(&CreateVolume {
        name: name.to_owned(),
        size: SizeInput(Size(size)),
        ..CreateVolume::default()
    })?)
}

pub fn export(session: &Session, args: &ExportArgs) -> anyhow::Result<()> {
    let source = moment::read_of_volume(&args.source)?;
    let is_stream = stream::is_one(&args.file)?;
    let format = match args.format {
        Some(Format::Qcow2) if is_stream => {
            let message = "a stream is raw: qcow2 is not written from front to back";
            return Err(Failure::usage(message).into());
        }
        Some(format) => format,
        None if is_stream => Format::Raw,
        None => format_of_name(&args.file)?,
    };
    if !is_stream {
        may_export_to(args)?;
    }
    let client = session.client()?;
    let volume = client.volume(&source.volume)?;
    let resolved = client.resolve(&source.volume, &source.moment.to_string())?;
    let at = Moment::Seq(Seq(resolved.seq));
    let uri = uri(&volume, &format!("%40{at}"))?;
    // The volume may have had another size then.
    let size = stream::open(&uri)?.size_bytes;
    if is_stream {
        stream::export(&args.file, &uri)?;
    } else {
        copy_out(args, format, &uri)?;
    }
    let (name, file) = (&source.volume, args.file.display());
    say(&format!("exported {name}@{at} ({}) to {file}", resolved.time));
    if args.file == Path::new("-") {
        // Standard output has the bytes and nothing else.
        return Ok(());
    }
    let answer = json!({
        "volume": source.volume, "seq": resolved.seq, "time": resolved.time,
        "exact": resolved.exact, "file": args.file, "format": format.name(), "size": size,
    });
    session.answer(&answer, |_| String::new())
}

/// Refuses a file that is there unless it shall be replaced.
pub fn may_replace(file: &Path, overwrite: bool) -> anyhow::Result<()> {
    if !overwrite && file.try_exists()? {
        return Err(Failure::new(format!("{} exists", file.display()))
            .with_hint("give another name, or --overwrite")
            .into());
    }
    Ok(())
}

/// The same, and what is no regular file.
fn may_export_to(args: &ExportArgs) -> anyhow::Result<()> {
    may_replace(&args.file, args.overwrite)?;
    let file = args.file.display();
    if args.file.try_exists()? && !args.file.metadata()?.is_file() {
        return Err(Failure::new(format!("{file} is not a regular file"))
            .with_hint(
                "export to a file; for a device: qemu-img convert from the nbd address that \
                 `hindsight volume show` gives",
            )
            .into());
    }
    Ok(())
}

/// Has `write` fill a stream, or a file that gets its name when it is whole.
pub fn to_file_or_stream<T>(
    args: &ExportArgs,
    write: impl FnOnce(Box<dyn Write>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    if stream::is_one(&args.file)? {
        return write(stream::output(&args.file)?);
    }
    may_export_to(args)?;
    whole(&args.file, |unfinished| write(Box::new(File::create(unfinished)?)))
}

/// Has `write` make a file, which gets its name when it is whole.
pub fn whole<T>(file: &Path, write: impl FnOnce(&Path) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let unfinished = unfinished(file)?;
    let written = write(&unfinished);
    if written.is_err() {
        // It is of no use to anyone; that it could not be removed matters less than why it failed.
        let _ = std::fs::remove_file(&unfinished);
        return written;
    }
    std::fs::rename(&unfinished, file)?;
    written
}

/// Has `qemu-img` write the image.
fn copy_out(args: &ExportArgs, format: Format, uri: &str) -> anyhow::Result<()> {
    whole(&args.file, |unfinished| {
        let mut command = convert();
        command.args(["-f", "raw", "-O", format.name(), uri]).arg(operand(unfinished));
        run(command, "exporting")
    })
}

/// The form that the ending of a name says. Any other ending is refused: a raw file called
/// `disk.vmdk` would be taken for what it is not.
fn format_of_name(file: &Path) -> anyhow::Result<Format> {
    let ending = file.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("qcow2") => Ok(Format::Qcow2),
        None | Some("raw" | "img" | "bin" | "dd" | "iso") => Ok(Format::Raw),
        Some(other) => Err(Failure::usage(format!("no image format is known by .{other}"))
            .with_hint("say which it shall be: --format raw or --format qcow2")
            .into()),
    }
}

/// `FILE.part` beside the file.
pub fn unfinished(file: &Path) -> anyhow::Result<PathBuf> {
    let Some(name) = file.file_name() else {
        return Err(Failure::usage(format!("{} names no file", file.display())).into());
    };
    let mut name = name.to_owned();
    name.push(".part");
    Ok(file.with_file_name(name))
}

/// The NBD address of a volume that can be reached from here, with `suffix` after its name.
pub fn uri(volume: &Volume, suffix: &str) -> anyhow::Result<String> {
    if volume.share {
        let name = &volume.name;
        let hint = format!("mount it over NFS: `hindsight share show {name}` says how");
        return Err(Failure::new(format!("{name} is a share, and no disk")).with_hint(hint).into());
    }
    let none = || {
        anyhow::Error::from(
            Failure::new("the server has no NBD listener that this command can use").with_hint(
                "run it on the server's machine as the server's user, or give serve --nbd",
            ),
        )
    };
    let unix = volume.nbd_uri.as_deref().filter(|uri| {
        let socket = uri.split_once("?socket=").map(|(_, socket)| socket);
        // A name that needs decoding is left to the client to try.
        socket.is_some_and(|socket| socket.contains('%') || Path::new(socket).exists())
    });
    let uri = unix.or(volume.nbd_tcp_uri.as_deref()).ok_or_else(none)?;
    if uri.starts_with("nbds:") {
        return Err(none());
    }
    Ok(match uri.split_once('?') {
        Some((address, query)) => format!("{address}{suffix}?{query}"),
        None => format!("{uri}{suffix}"),
    })
}

/// Looks at an image. One that refers to another file is refused: whoever made it chose that file.
fn inspect(file: &Path, format: Option<Format>) -> anyhow::Result<ImageInfo> {
    if !file.try_exists()? {
        return Err(Failure::new(format!("there is no {}", file.display())).into());
    }
    if file.is_dir() {
        return Err(Failure::new(format!("{} is a directory", file.display())).into());
    }
    let mut command = Command::new("qemu-img");
    command.args(["info", "--output=json"]);
    if let Some(format) = format {
        command.args(["-f", format.name()]);
    }
    let output = command.arg(operand(file)).stdin(Stdio::null()).output().map_err(absent)?;
    if !output.status.success() {
        return Err(Failure::new(last_line(&output.stderr)).into());
    }
    let image: ImageInfo = serde_json::from_slice(&output.stdout)?;
    if image.backing_filename.is_some() {
        return Err(Failure::new(format!("{} is an overlay of another image", file.display()))
            .with_hint("make one whole image of it first: qemu-img convert -O qcow2 OLD NEW")
            .into());
    }
    // An image from elsewhere may name any file of this machine: it is not read.
    if image.format_specific.as_ref().is_some_and(|specific| specific.data.data_file.is_some()) {
        return Err(Failure::new(format!("{} keeps its data in another file", file.display()))
            .with_hint("make one whole image of it first: qemu-img convert -O qcow2 OLD NEW")
            .into());
    }
    if format.is_none() && !["raw", "qcow2"].contains(&image.format.as_str()) {
        let message = format!("{} is a {} image", file.display(), image.format);
        return Err(Failure::new(message)
            .with_hint("convert it first: qemu-img convert -O qcow2 OLD NEW")
            .into());
    }
    Ok(image)
}

/// A part of an image, as `qemu-img map --output=json` tells it.
#[derive(Debug, Deserialize)]
struct MappedPart {
    start: u64,
    length: u64,
    zero: bool,
}

/// The parts of an export that are not known to be zeros.
pub fn data_ranges(uri: &str) -> anyhow::Result<Vec<api::Range>> {
    let mut command = Command::new("qemu-img");
    command.args(["map", "--output=json", "-f", "raw", uri]);
    let output = command.stdin(Stdio::null()).output().map_err(absent)?;
    if !output.status.success() {
        return Err(Failure::new(last_line(&output.stderr)).into());
    }
    let parts: Vec<MappedPart> = serde_json::from_slice(&output.stdout)?;
    let data = parts.into_iter().filter(|part| !part.zero);
    Ok(data.map(|part| api::Range { offset: part.start, length: part.length }).collect())
}

/// A path that qemu-img takes for nothing else: names with a colon would be protocols.
fn operand(file: &Path) -> PathBuf {
    if file.is_absolute() { file.to_owned() } else { Path::new(".").join(file) }
}

fn convert() -> Command {
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-p", "-S", "4k", "-m", "16"]);
    command
}

/// Runs a conversion and shows how far it is when standard error is a terminal.
fn run(mut command: Command, what: &str) -> anyhow::Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(absent)?;
    let style = ProgressStyle::with_template("{msg} [{wide_bar}] {percent:>3} % {eta}")?;
    let bar = ProgressBar::new(10_000).with_style(style).with_message(what.to_owned());
    if let Some(stdout) = child.stdout.take() {
        follow(BufReader::new(stdout), &bar);
    }
    let mut complaint = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        // qemu-img says little: what it says fits the pipe until it ends.
        stderr.read_to_end(&mut complaint)?;
    }
    let status = child.wait()?;
    bar.finish_and_clear();
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(last_line(&complaint)).into())
}

/// Reads `    (12.34/100%)\r` until the end.
fn follow(progress: impl BufRead, bar: &ProgressBar) {
    let mut number = String::new();
    for byte in progress.bytes().map_while(Result::ok) {
        match byte {
            b'(' => number.clear(),
            b'/' => {
                if let Ok(percent) = number.parse::<f64>() {
                    bar.set_position((percent.clamp(0.0, 100.0) * 100.0) as u64);
                }
            }
            _ if number.len() < 8 => number.push(char::from(byte)),
            _ => {}
        }
    }
}

fn last_line(complaint: &[u8]) -> String {
    let text = String::from_utf8_lossy(complaint);
    let line = text.lines().rev().find(|l| !l.trim().is_empty());
    line.unwrap_or("qemu-img failed and did not say why").to_owned()
}

fn absent(error: std::io::Error) -> anyhow::Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        return Failure::new("qemu-img is not installed")
            .with_hint("install it: apt-get install qemu-utils")
            .into();
    }
    anyhow::Error::new(error).context("cannot run qemu-img")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use indicatif::ProgressBar;

    use super::{Format, follow, format_of_name, operand, unfinished};

    #[test]
    fn progress_is_read_as_it_comes() {
        let bar = ProgressBar::hidden();
        follow(&b"    (0.00/100%)\r    (12.34/100%)\r"[..], &bar);
        assert_eq!(bar.position(), 1234);
    }

    #[test]
    fn the_name_of_a_file_says_its_format() {
        let format = |name: &str| format_of_name(Path::new(name)).ok();
        assert_eq!(format("a.QCOW2"), Some(Format::Qcow2));
        assert_eq!(format("a.img"), Some(Format::Raw));
        assert_eq!(format("/dev.old/a"), Some(Format::Raw));
        assert_eq!(format("a.vmdk"), None);
        assert_eq!(format("a.img.gz"), None);
        assert_eq!(unfinished(Path::new("/x/a.img")).expect("file"), Path::new("/x/a.img.part"));
        assert_eq!(operand(Path::new("nbd:evil")), Path::new("./nbd:evil"));
    }
}
