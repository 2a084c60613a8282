//! Files of traces: opened to read, written under another name until they are whole.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use indicatif::ProgressBar;
use lab::read::{BlockEvent, Format, Input, ReadOptions, Reader};
use lab::write::{WriteFormat, Written};
use lab::{Devices, Request, Source};
use serde::Serialize;

use super::seconds;
use crate::failure::Failure;
use crate::output::{count, human};
use crate::session::{Session, say};

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// Formats on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatName {
    Hindsight,
    FioV2,
    FioV3,
    Msr,
    Alibaba,
    Tencent,
    Systor,
    Fiu,
    Spc,
    Blktrace,
}

impl FormatName {
    fn format(self) -> Format {
        match self {
            FormatName::Hindsight => Format::Hindsight,
            FormatName::FioV2 => Format::FioV2,
            FormatName::FioV3 => Format::FioV3,
            FormatName::Msr => Format::Msr,
            FormatName::Alibaba => Format::Alibaba,
            FormatName::Tencent => Format::Tencent,
            FormatName::Systor => Format::Systor,
            FormatName::Fiu => Format::Fiu,
            FormatName::Spc => Format::Spc,
            FormatName::Blktrace => Format::Blktrace,
        }
    }
}

/// Events of blktrace.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum EventName {
    Queue,
    Issue,
    Complete,
}

/// Formats that can be written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OutputName {
    Hindsight,
    FioV3,
}

/// What is read, and how.
#[derive(Debug, clap::Args)]
pub struct ReadArgs {
    /// The traces; several are merged by time; - is standard input.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Their format [default: what they look like].
    #[arg(long)]
    format: Option<FormatName>,
    /// Fail at the first malformed line instead of counting them.
    #[arg(long)]
    strict: bool,
    /// Which event of a request blktrace is taken to mean.
    #[arg(long, default_value = "queue")]
    event: EventName,
}

impl ReadArgs {
    /// One trace, in the format that it looks like.
    pub fn of(trace: &Path) -> ReadArgs {
        let traces = vec![trace.to_owned()];
        ReadArgs { traces, format: None, strict: false, event: EventName::Queue }
    }

    /// What is named, if it is one thing of which nothing says that it is a trace.
    pub fn only_name(&self) -> Option<&str> {
        match &self.traces[..] {
            [one] if self.format.is_none() && !self.strict => one.to_str(),
            _ => None,
        }
    }

    /// Whether standard input is one of the traces.
    pub fn is_stdin(&self) -> bool {
        self.traces.iter().any(|path| path == Path::new("-"))
    }

    /// Opens the traces.
    pub fn open(&self) -> anyhow::Result<Reader> {
        let event = match self.event {
            EventName::Queue => BlockEvent::Queue,
            EventName::Issue => BlockEvent::Issue,
            EventName::Complete => BlockEvent::Complete,
        };
        let format = self.format.map(FormatName::format);
        let inputs = self.traces.iter().map(|path| input(path));
        let inputs: Vec<Input> = inputs.collect::<anyhow::Result<_>>()?;
        Ok(Reader::open(inputs, ReadOptions { format, is_strict: self.strict, event })?)
    }
}

fn input(path: &Path) -> anyhow::Result<Input> {
    if path == Path::new("-") {
        let bytes = Box::new(BufReader::with_capacity(BUFFER_BYTES, std::io::stdin()));
        return Ok(Input { name: "standard input".to_owned(), bytes });
    }
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    Ok(Input { name, bytes: Box::new(BufReader::with_capacity(BUFFER_BYTES, file)) })
}

/// What is written, and how.
#[derive(Debug, clap::Args)]
pub struct WriteArgs {
    /// The trace to write; must not exist; - is standard output.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Its format.
    #[arg(long, default_value = "hindsight")]
    to: OutputName,
    /// Replace the file if it exists.
    #[arg(long)]
    overwrite: bool,
}

impl WriteArgs {
    fn is_stdout(&self) -> bool {
        self.output == Path::new("-")
    }

    /// Writes; the file gets its name when it is whole.
    pub fn write(
        &self,
        write: impl FnOnce(WriteFormat, &mut dyn Write) -> lab::Result<Written>,
    ) -> anyhow::Result<Written> {
        let format = match self.to {
            OutputName::Hindsight => WriteFormat::Hindsight,
            OutputName::FioV3 => WriteFormat::FioV3,
        };
        if self.is_stdout() {
            let mut out = BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout().lock());
            return Ok(write(format, &mut out)?);
        }
        let shown = self.output.display();
        if !self.overwrite && self.output.try_exists()? {
            return Err(Failure::new(format!("{shown} exists"))
                .with_hint("give another name, or --overwrite")
                .into());
        }
        let unfinished = crate::image::unfinished(&self.output)?;
        let file = File::create(&unfinished)
            .with_context(|| format!("cannot create {}", unfinished.display()))?;
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        match write(format, &mut out) {
            Ok(written) => {
                std::fs::rename(&unfinished, &self.output)?;
                Ok(written)
            }
            Err(error) => {
                // Why it failed matters more than that a part of it may be left.
                let _ = std::fs::remove_file(&unfinished);
                Err(error.into())
            }
        }
    }

    /// Says what was written: on standard output, unless the trace went there.
    pub fn answer<T: Serialize>(
        &self,
        session: &Session,
        answer: &T,
        written: &Written,
    ) -> anyhow::Result<()> {
        let requests = count(written.requests, "request");
        let duration = seconds(written.duration_ns);
        say(&format!("{requests} over {duration}, {} written", human(written.bytes)));
        if self.is_stdout() || !session.json {
            return Ok(());
        }
        session.answer(answer, |_| String::new())
    }
}

/// A source that shows how far it is, when standard error is a terminal.
pub struct Progress<S> {
    inner: S,
    bar: ProgressBar,
    count: u64,
}

impl<S> Progress<S> {
    pub fn new(inner: S) -> Progress<S> {
        // Hidden by itself where standard error is no terminal.
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { inner, bar, count: 0 }
    }

    pub fn into_inner(self) -> S {
        self.bar.finish_and_clear();
        self.inner
    }
}

impl<S: Source> Source for Progress<S> {
    fn next(&mut self) -> lab::Result<Option<Request>> {
        const SHOWN_EVERY: u64 = 1 << 18;
        self.count += 1;
        if self.count.is_multiple_of(SHOWN_EVERY) {
            self.bar.set_message(format!("{} requests", self.count));
        }
        self.inner.next()
    }

    fn devices(&self) -> &Devices {
        self.inner.devices()
    }

    fn start(&self) -> u64 {
        self.inner.start()
    }
}
