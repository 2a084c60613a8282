//! Traces that are read: which, how, how far, and what was wrong with them.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use api::ExitCode;
use clap::ValueEnum;
use indicatif::ProgressBar;
use trace::read::{BlockEvent, Format, Input, ReadOptions, ReadReport, Reader};
use trace::{Devices, Request, Source};

use crate::session::say;

/// Bytes that are read at once.
pub const BUFFER_BYTES: usize = 1 << 20;

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

/// A source that shows how far it is, when standard error is a terminal.
pub struct Progress<S> {
    inner: S,
    bar: ProgressBar,
    count: u64,
}

impl<S> Progress<S> {
    /// Begins to show it.
    pub fn new(inner: S) -> Progress<S> {
        // Hidden by itself where standard error is no terminal.
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { inner, bar, count: 0 }
    }

    /// Ends showing it.
    pub fn into_inner(self) -> S {
        self.bar.finish_and_clear();
        self.inner
    }
}

impl<S: Source> Source for Progress<S> {
    fn next(&mut self) -> model::Result<Option<Request>> {
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

/// Says what could not be read; the exit code.
pub fn reported(report: &ReadReport) -> ExitCode {
    for malformed in &report.first_malformed {
        say(&malformed.to_string());
    }
    if report.malformed > 0 {
        say(&format!("{} malformed, left out", report.malformed));
    }
    if report.late > 0 {
        say(&format!("{} too early for their place, moved to it", report.late));
    }
    if report.lost > 0 {
        say(&format!("{} lost when it was recorded", report.lost));
    }
    if report.malformed + report.late + report.lost > 0 { ExitCode::Partly } else { ExitCode::Done }
}

/// Nanoseconds in seconds, for people.
pub fn seconds(nanos: u64) -> String {
    format!("{:.3} s", nanos as f64 / 1e9)
}
