//! `hindsight volume`.

use std::path::PathBuf;

use api::{
    ChangeVolume, Client, CreateVolume, ExitCode, HistoryQuery, SizeInput, SpanInput, Volume, Would,
};
use clap::Subcommand;
use serde_json::json;
use terminal::arguments::{granularity, size, span};
use units::{Granularity, Size, Span};

use crate::failure::Failure;
use crate::model;
use crate::rename;
use crate::session::{Session, say};
use crate::space;
use crate::trash;
use crate::volume_text::{limit_of, list, show};
use crate::{changes, image};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a volume.
    Create(CreateArgs),
    /// List the volumes.
    #[command(visible_alias = "ls")]
    List {
        /// List those that were deleted and can be had back.
        #[arg(long)]
        deleted: bool,
    },
    /// Show a volume.
    Show {
        /// Name of the volume.
        name: String,
    },
    /// Show what a volume's space is for: live, history by age, what holds it, growth.
    Space {
        /// Name of the volume.
        name: String,
    },
    /// Change settings of a volume.
    Set(SetArgs),
    /// Change the size of a volume.
    Resize {
        /// Name of the volume.
        name: String,
        /// New size, such as 20GiB, or how much larger it gets: +10GiB.
        #[arg(value_parser = new_size)]
        size: NewSize,
        /// Shrink it although clients are attached.
        #[arg(long)]
        force: bool,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Give a volume another name. Clients that have it open keep it.
    Rename(rename::Args),
    /// Delete a volume with its history; it can be had back for a while. Clones of it live on.
    #[command(visible_alias = "rm")]
    Delete(trash::DeleteArgs),
    /// Bring a deleted volume back, with its history, versions, marks and schedule.
    Undelete(trash::UndeleteArgs),
    /// Write an image (raw or qcow2) or a stream to a volume; it is created if it is not there.
    Import(image::ImportArgs),
    /// Write a volume, or a moment of it, to an image (raw or qcow2) or a stream.
    Export(image::ExportArgs),
}

#[derive(Debug, clap::Args)]
pub struct CreateArgs {
    /// Name: 1 to 128 of A-Z a-z 0-9 . _ -, a letter or digit first.
    name: String,
    /// Size, such as 10GiB.
    #[arg(long, value_parser = size)]
    size: Size,
    /// Where current data lives: logging, split-stream, split-downstream, redirect,
    /// checkpointing, hybrid or auto [default: logging].
    #[arg(long)]
    architecture: Option<String>,
    /// With auto: a volume that is used as this one will be.
    #[arg(long, value_name = "VOLUME", conflicts_with = "trace")]
    like: Option<String>,
    /// With auto: a trace of what this volume will be asked.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Which writes are retained: every-write, on-demand or an interval such as 1s
    /// [default: every-write].
    #[arg(long, value_parser = granularity)]
    granularity: Option<Granularity>,
    /// How far back the past can be opened [default: 1d].
    #[arg(long, value_name = "SPAN", value_parser = span)]
    window: Option<Span>,
    /// How much history may be kept [default: as much as the pool holds].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    history_limit: Option<Size>,
    /// Size of a map extent: 4KiB, 8KiB, 16KiB, 32KiB or 64KiB. A larger one takes less memory for
    /// the map of what is written in large pieces [default: 4KiB].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    extent: Option<Size>,
    /// Copy unit: 4KiB, 8KiB, 16KiB, 32KiB or 64KiB. The first write to one after a capture takes
    /// all of it along; for redirect and checkpointing at on-demand [default: 4KiB].
    #[arg(long, value_name = "UNIT", value_parser = size)]
    copy_unit: Option<Size>,
    /// Write-back cache, or none. With one, writes that were not flushed are lost when the server
    /// dies [default: none; 64MiB for split-downstream and hybrid].
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    cache: Option<Limit>,
    /// How much of the cache may wait to be written [default: 3].
    #[arg(long, value_name = "PERCENT")]
    cache_dirty: Option<u8>,
    /// How versions that were written over are kept: raw, delta or xor [default: raw].
    #[arg(long, value_name = "ENCODING")]
    encoding: Option<String>,
    /// How long ago a version was written over before it is encoded [default: 10min].
    #[arg(long, value_name = "SPAN", value_parser = span)]
    encode_after: Option<Span>,
    /// Whether equal blocks are stored once, within the volume and with its clones: on or off
    /// [default: off].
    #[arg(long, value_name = "ON|OFF", value_parser = on_or_off)]
    dedup: Option<bool>,
}

#[derive(Debug, clap::Args)]
pub struct SetArgs {
    /// Name of the volume.
    name: String,
    /// Where current data lives: logging, split-stream, split-downstream, redirect, checkpointing
    /// or hybrid. Changes at once; data moves in the background, history stays.
    #[arg(long)]
    architecture: Option<String>,
    /// Which writes are retained from now on.
    #[arg(long, value_parser = granularity)]
    granularity: Option<Granularity>,
    /// How far back the past can be opened. What a shorter window takes away is kept for the grace
    /// period.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    window: Option<Span>,
    /// How much history may be kept; none takes the limit away.
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    history_limit: Option<Limit>,
    /// For how long what a shorter window or smaller history limit takes away is kept: until then
    /// setting back what held before loses nothing [default: 1d].
    #[arg(long, value_name = "SPAN", value_parser = span)]
    grace: Option<Span>,
    /// Without a grace period; ends one that is under way.
    #[arg(long, conflicts_with = "grace")]
    now: bool,
    /// Write-back cache; none switches it off. With one, writes that were not flushed are lost when
    /// the server dies.
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    cache: Option<Limit>,
    /// How much of the cache may wait to be written.
    #[arg(long, value_name = "PERCENT")]
    cache_dirty: Option<u8>,
    /// How versions that were written over are kept: raw, delta or xor. What is encoded stays so.
    #[arg(long, value_name = "ENCODING")]
    encoding: Option<String>,
    /// How long ago a version was written over before it is encoded.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    encode_after: Option<Span>,
    /// Whether equal blocks are stored once: on or off. What is shared stays so.
    #[arg(long, value_name = "ON|OFF", value_parser = on_or_off)]
    dedup: Option<bool>,
    /// Copy unit: what the first write to it after a capture takes along. 4KiB goes with a change
    /// to an architecture or granularity that has no larger one.
    #[arg(long, value_name = "UNIT", value_parser = size)]
    copy_unit: Option<Size>,
    /// A hook of the server's configuration around captures that name none; none takes it away.
    #[arg(long, value_name = "NAME")]
    hook: Option<String>,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

/// A size or none.
#[derive(Clone, Copy, Debug)]
pub struct Limit(Option<Size>);

impl Limit {
    /// As a request has it.
    pub fn input(self) -> Option<SizeInput> {
        self.0.map(SizeInput)
    }
}

/// A size to change to.
#[derive(Clone, Copy, Debug)]
pub enum NewSize {
    Of(Size),
    /// So much more than there is.
    Larger(Size),
}

fn new_size(text: &str) -> Result<NewSize, String> {
    match text.strip_prefix('+') {
        Some(more) => size(more).map(NewSize::Larger),
        None => size(text).map(NewSize::Of),
    }
}

/// Reads a limit for clap.
pub fn limit(text: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(None)) } else { size(text).map(|s| Limit(Some(s))) }
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Create(args) => create(session, args)?,
        Verb::List { deleted: true } => trash::show(session)?,
        Verb::List { deleted: false } => {
            session.answer(&session.client()?.volumes()?, |all| list(all))?;
        }
        Verb::Show { name } => session.answer(&session.client()?.volume(&name)?, show)?,
        Verb::Space { name } => {
            session.answer(&session.client()?.volume_space(&name)?, space::show)?;
        }
        Verb::Set(args) => set(session, &args)?,
        Verb::Resize { name, size, force, dry_run } => {
            resize(session, &name, size, force, dry_run)?;
        }
        Verb::Rename(args) => rename::run(session, args)?,
        Verb::Delete(args) => trash::delete(session, &args, Client::remove_volume)?,
        Verb::Undelete(args) => trash::undelete(session, args)?,
        Verb::Import(args) if args.diff => changes::import(session, &args)?,
        Verb::Import(args) => image::import(session, &args)?,
        Verb::Export(args) => match &args.since {
            Some(since) => changes::export(session, &args, since)?,
            None => image::export(session, &args)?,
        },
    }
    Ok(ExitCode::Done)
}

fn create(session: &Session, mut args: CreateArgs) -> anyhow::Result<()> {
    if let Some(trace) = &args.trace {
        if args.architecture.as_deref() != Some("auto") {
            let wrong = Failure::usage("--trace goes with --architecture auto");
            return Err(wrong.into());
        }
        let wanted = model::Wanted {
            size: args.size,
            granularity: args.granularity.unwrap_or(Granularity::EveryWrite),
            window: args.window,
            history_limit: args.history_limit,
            cache: args.cache.map_or(Size(0), |cache| cache_size(cache).0),
            cache_dirty: args.cache_dirty,
        };
        args.architecture = Some(model::choose(trace, &wanted)?);
    }
    let volume = session.client()?.create_volume(&CreateVolume {
        name: args.name,
        size: SizeInput(args.size),
        architecture: args.architecture,
        like: args.like,
        granularity: args.granularity,
        window: args.window.map(SpanInput),
        history_limit: args.history_limit.map(SizeInput),
        extent: args.extent.map(SizeInput),
        copy_unit: args.copy_unit.map(SizeInput),
        cache: args.cache.map(cache_size),
        cache_dirty_percent: args.cache_dirty,
        encoding: args.encoding,
        encode_after: args.encode_after.map(SpanInput),
        dedup: args.dedup,
    })?;
    warn_of_cache(&volume);
    tell_warning(&volume);
    session.answer(&volume, show)
}

/// What the server says of a size that was asked for.
fn tell_warning(volume: &Volume) {
    if let Some(warning) = &volume.warning {
        say(&format!("warning: {warning}"));
    }
}

fn set(session: &Session, args: &SetArgs) -> anyhow::Result<()> {
    let names_cache = args.cache.is_some() || args.cache_dirty.is_some();
    let names_history = args.window.is_some() || args.history_limit.is_some() || args.now;
    let body = ChangeVolume {
        size: None,
        architecture: args.architecture.clone(),
        granularity: args.granularity,
        window: args.window.map(SpanInput),
        history_limit: args.history_limit.map(|l| l.0.map(SizeInput)),
        grace: if args.now { Some(SpanInput(Span(0))) } else { args.grace.map(SpanInput) },
        cache: args.cache.map(cache_size),
        cache_dirty_percent: args.cache_dirty,
        encoding: args.encoding.clone(),
        encode_after: args.encode_after.map(SpanInput),
        dedup: args.dedup,
        copy_unit: args.copy_unit.map(SizeInput),
        hook: args.hook.clone().map(hook_or_none),
    };
    if (ChangeVolume { grace: None, ..body.clone() }) == ChangeVolume::default() && !args.now {
        let all = "--architecture, --granularity, --window, --history-limit, --now, --cache, \
                   --cache-dirty, --encoding, --encode-after, --dedup, --copy-unit, --hook";
        return Err(Failure::usage("no setting is named")
            .with_hint(format!("give one of {all}"))
            .into());
    }
    if let (Some(grace), false) = (args.grace, names_history) {
        let text = format!("--grace {grace} goes with --window or --history-limit");
        return Err(Failure::usage(text).into());
    }
    let client = session.client()?;
    if !args.dry_run {
        if args.now {
            session.confirm(&format!("history of {} that is kept no more goes", args.name))?;
        }
        let volume = client.change_volume(&args.name, &body, false)?;
        if names_cache || args.architecture.is_some() {
            warn_of_cache(&volume);
        }
        if names_history {
            tell_grace(&volume);
        }
        return session.answer(&volume, show);
    }
    let (volume, told) = would_become(client.volume(&args.name)?, args);
    let would: Vec<Would> =
        told.into_iter().map(|text| Would::new("change", &args.name, text)).collect();
    session.would(&would, &volume, show)
}

fn tell_grace(volume: &Volume) {
    if let Some(grace) = volume.grace {
        let until = grace.until;
        say(&format!(
            "what that takes away is kept until {until}; set back what held before, and nothing is \
             lost"
        ));
    }
}

const CACHE_WOULD_BE: &str =
    "it would have a write-back cache: what was not flushed is lost if the server dies";

/// The volume as it would be, and what would be changed, in sentences.
fn would_become(mut volume: Volume, args: &SetArgs) -> (Volume, Vec<String>) {
    let mut told = Vec::new();
    let mut tell = |line: String| told.push(line);
    if let Some(architecture) = args.architecture.clone() {
        let rest = "data would move in the background, the history stays as it is";
        tell(format!("the architecture would be {architecture}: {rest}"));
        let needs_cache = ["split-downstream", "hybrid"].contains(&&*architecture);
        if needs_cache && volume.cache.is_none() {
            tell(CACHE_WOULD_BE.to_owned());
        }
        if architecture == "auto" {
            tell(format!("auto is what `hindsight model advise {}` names", args.name));
        } else {
            volume.architecture = architecture;
        }
    }
    if let Some(granularity) = args.granularity {
        tell(format!("the granularity would be {granularity} from now on"));
        volume.granularity = granularity;
    }
    if let Some(window) = args.window {
        let older = lost("history older than the new window", window < volume.window.0, args);
        tell(format!("the window would be {window}{older}"));
        volume.window = SpanInput(window);
    }
    if let Some(Limit(limit)) = args.history_limit {
        let limit = limit.map(|l| l.0);
        let is_less = limit.is_some_and(|limit| volume.history_limit.is_none_or(|l| limit < l));
        volume.history_limit = limit;
        let less = lost("history beyond it", is_less, args);
        tell(format!("the history limit would be {}{less}", limit_of(limit)));
    }
    if args.cache.is_some() || args.cache_dirty.is_some() {
        let size = args.cache.map_or("its size".to_owned(), |c| cache_size(c).0.to_string());
        tell(format!("its cache would have {size}; what waits in it would be written first"));
    }
    if let Some(kind) = args.encoding.clone() {
        let rest =
            "what is encoded stays so until it expires, the rest is encoded in the background";
        tell(format!("the encoding would be {kind}: {rest}"));
        volume.encoding.kind = kind;
    }
    if let Some(after) = args.encode_after {
        tell(format!("versions would be encoded {after} after they were written over"));
        volume.encoding.after = Some(SpanInput(after));
    }
    if let Some(on) = args.dedup {
        let what = match on {
            true => "equal blocks would be stored once, in the background",
            false => "no more blocks would be shared; what is shared stays so",
        };
        tell(what.to_owned());
        volume.dedup.on = on;
    }
    if let Some(unit) = args.copy_unit {
        tell(format!("the copy unit would be {unit} from the next first write on"));
        volume.copy_unit = unit.bytes();
    }
    if let Some(hook) = args.hook.clone() {
        tell(format!("the hook would be {hook}"));
        (volume.hook, volume.hook_known) = (hook_or_none(hook), true);
    }
    if args.now && args.window.is_none() && volume.grace.is_some() {
        tell("a grace period that is under way would end".to_owned());
    }
    (volume, told)
}

/// What a smaller window or limit takes away, and when.
fn lost(what: &str, is_less: bool, args: &SetArgs) -> String {
    let grace = args.grace.map_or("1d".to_owned(), |grace| grace.to_string());
    match (is_less, args.now) {
        (false, _) => String::new(),
        (true, true) => format!(": {what} would be lost at once"),
        (true, false) => format!(": {what} would be kept for {grace}"),
    }
}

/// A hook that is set; `none` takes it away.
pub fn hook_or_none(hook: String) -> Option<String> {
    (hook != "none").then_some(hook)
}

fn cache_size(limit: Limit) -> SizeInput {
    SizeInput(limit.0.unwrap_or(Size(0)))
}

/// Promise 2 is given up: that is said aloud.
fn warn_of_cache(volume: &Volume) {
    if volume.cache.is_some() {
        say(&format!(
            "{} has a write-back cache: what was not flushed is lost if the server dies",
            volume.name
        ));
    }
}

/// Reads a switch for clap.
pub fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("give on or off, not {other}")),
    }
}

fn resize(
    session: &Session,
    name: &str,
    size: NewSize,
    force: bool,
    dry_run: bool,
) -> anyhow::Result<()> {
    let client = session.client()?;
    let size = match size {
        NewSize::Of(size) => size,
        NewSize::Larger(by) => {
            let sum = client.volume(name)?.size.checked_add(by.0);
            Size(sum.ok_or_else(|| Failure::usage(format!("+{by} is more than can be told")))?)
        }
    };
    if dry_run {
        let volume = client.volume(name)?;
        let text = format!("{name} would go from {} to {size}", Size(volume.size));
        let would = Would::new("resize", name, text);
        let answer = json!({"name": name, "from": volume.size, "to": size.0});
        return session.would(&[would], &answer, |_| String::new());
    }
    let before = client.volume(name)?;
    let body = ChangeVolume { size: Some(SizeInput(size)), ..ChangeVolume::default() };
    let volume = client.change_volume(name, &body, force)?;
    tell_warning(&volume);
    session.answer(&volume, show)?;
    if volume.size < before.size {
        let history = client.history(name, &HistoryQuery::default())?;
        let resizes = history.events.iter().filter(|event| event.kind == "resize");
        if let Some(seq) = resizes.map(|event| event.seq).max() {
            say(&format!("to undo: hindsight revert {name} --to seq:{}", seq.saturating_sub(1)));
        }
    }
    Ok(())
}
