//! Traces that are written: under another name until they are whole.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use terminal::traces::{BUFFER_BYTES, seconds};
use trace::write::{WriteFormat, Written};

use crate::image;
use crate::output::{count, human};
use crate::session::{Session, say};

/// Formats that can be written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OutputName {
    Hindsight,
    FioV3,
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
        write: impl FnOnce(WriteFormat, &mut dyn Write) -> model::Result<Written>,
    ) -> anyhow::Result<Written> {
        let format = match self.to {
            OutputName::Hindsight => WriteFormat::Hindsight,
            OutputName::FioV3 => WriteFormat::FioV3,
        };
        if self.is_stdout() {
            let mut out = BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout().lock());
            return Ok(write(format, &mut out)?);
        }
        image::may_replace(&self.output, self.overwrite)?;
        image::whole(&self.output, |unfinished| {
            let file = File::create(unfinished)
                .with_context(|| format!("cannot create {}", unfinished.display()))?;
            Ok(write(format, &mut BufWriter::with_capacity(BUFFER_BYTES, file))?)
        })
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
