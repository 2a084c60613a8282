//! `hindsight pool`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use api::{
    AttachMember, AuditRecord, ChangePool, ExitCode, GrowPool, ListQuery, Member, Page, Pool,
    ReplaceMember, Sacrifice, Scrub, SetScrub, SizeInput, SpanInput, Spare, WriteBuffer,
};
use clap::Subcommand;
use format::PAGE_BYTES;
use format::label::{self, Label};
use format::superblock::{COPY_OFFSETS, Superblock};
use serde_json::json;
use units::{Size, Span};

use crate::output::{Table, count, human, pairs};
use crate::session::{Session, say};
use crate::space;
use crate::volume::{self, Limit};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a pool on several files or disks; no server needed.
    ///
    /// A pool on one file is made by `hindsight serve` itself.
    Create {
        /// The pool's directory: empty or missing.
        #[arg(long, value_name = "DIR")]
        pool: PathBuf,
        /// The layers over the members, as in `stripe(mirror(a.img, b.img), mirror(c.img, d.img))`;
        /// paths are relative to the directory.
        #[arg(long, value_name = "STACK")]
        stack: String,
        /// The size of members that are not there yet; they are made as sparse files.
        #[arg(long, value_name = "SIZE")]
        size: Option<Size>,
    },
    /// Show the pool: layers, space, damage found.
    Status,
    /// List the audit log: what was made, deleted, reverted, expired, healed.
    Audit {
        /// Only records with a number above this.
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        after: u64,
    },
    /// Change how fast scrubs and rebuilds may be, until the server is started again.
    #[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
    Set {
        /// How much a scrub reads a second at most, of all copies; none takes the limit away.
        #[arg(long, value_name = "SIZE", group = "what", value_parser = volume::limit)]
        scrub_rate: Option<Limit>,
        /// How much members get a second at most that came back, were replaced or are spares; none
        /// takes the limit away.
        #[arg(long, value_name = "SIZE", group = "what", value_parser = volume::limit)]
        rebuild_rate: Option<Limit>,
    },
    /// Put another file or disk in the place of a member, which stays in use until the other has
    /// everything, while the pool goes on.
    Replace {
        /// The member's path, as `pool status` shows it.
        #[arg(value_name = "MEMBER")]
        member: String,
        /// What takes its place: blank, a spare, or not there, then a sparse file is made. A member
        /// that is out may take its own.
        #[arg(value_name = "PATH")]
        with: String,
    },
    /// Make another file or disk a mirror of a pool's one file, or one side more of its mirror,
    /// while clients go on.
    ///
    /// A pool on one file is a mirror from then on. `pool status` shows how much is still to be
    /// copied; until that is done the new side cannot replace the others.
    Attach {
        /// The new side: blank and as long at least; a sparse file is made where nothing is.
        #[arg(value_name = "PATH")]
        with: String,
        /// A member, as `pool status` shows it, to be sure that it is this pool.
        #[arg(long, value_name = "MEMBER")]
        beside: Option<String>,
    },
    /// Make a pool larger, while the server runs on it or, with `--pool`, while none does.
    ///
    /// Without `--add` the one file or disk of a pool is used to its end. Members that became
    /// longer are as well, but only with `--pool`.
    Grow {
        /// The pool that no server runs on: its directory, file or device.
        #[arg(long, value_name = "PATH")]
        pool: Option<PathBuf>,
        /// Layers over new members, behind what there is: `mirror(c.img, d.img)`.
        #[arg(long, value_name = "STACK")]
        add: Option<String>,
        /// Make the one file, or members that are files, so long; with `--add` the size of new
        /// ones.
        #[arg(long, value_name = "SIZE")]
        size: Option<Size>,
    },
    /// Add or take away files or disks that wait to take the place of a member that fails.
    #[command(subcommand)]
    Spare(SpareVerb),
    /// Look at every copy of everything that is stored, and write what is wrong again.
    ///
    /// It runs in the background, at once while clients are quiet and for a twentieth of the time
    /// beside them.
    Scrub {
        /// Wait until it is done; exits 3 if something is lost.
        #[arg(long)]
        wait: bool,
        /// Stop the one that is running.
        #[arg(long, conflicts_with = "wait")]
        stop: bool,
        /// Begin none now, but one so long after the beginning of the last, always: 7d.
        #[arg(long, value_name = "SPAN", conflicts_with_all = ["wait", "stop"])]
        every: Option<Span>,
        /// From now on begin none but when asked to.
        #[arg(long, conflicts_with_all = ["wait", "stop", "every"])]
        never: bool,
    },
    /// Print the superblocks of a pool, or the labels of its members; no server needed.
    Inspect {
        /// The pool: its directory, file or device.
        #[arg(long, value_name = "PATH")]
        pool: PathBuf,
    },
    /// Throw the map of a pool away and build it again from the log; no server may run on it.
    Rebuild {
        /// The pool: its directory, file or device.
        #[arg(long, value_name = "PATH")]
        pool: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum SpareVerb {
    /// Add a spare: when a member is out, the smallest spare that is large enough takes its place.
    Add {
        /// Blank, or not there, then a sparse file is made.
        #[arg(value_name = "PATH")]
        path: String,
    },
    /// Take a spare away; its file stays, and is blank.
    Remove {
        /// The spare's path, as `pool status` shows it.
        #[arg(value_name = "PATH")]
        path: String,
    },
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Status => session.answer(&session.client()?.pool()?, show)?,
        Verb::Audit { after } => session.answer(&audit(session, after)?, |r| records(r))?,
        Verb::Set { scrub_rate, rebuild_rate } => {
            let [scrub_rate, rebuild_rate] =
                [scrub_rate, rebuild_rate].map(|l| l.map(Limit::input));
            let body = ChangePool { scrub_rate, rebuild_rate };
            session.answer(&session.client()?.change_pool(&body)?, show)?;
        }
        Verb::Replace { member, with } => {
            let body = ReplaceMember { member, with };
            session.answer(&session.client()?.replace_member(&body)?, show)?;
        }
        Verb::Attach { with, beside } => {
            let body = AttachMember { with, member: beside };
            session.answer(&session.client()?.attach_member(&body)?, show)?;
        }
        Verb::Spare(SpareVerb::Add { path }) => {
            session.answer(&session.client()?.add_spare(&Spare { path })?, show)?;
        }
        Verb::Spare(SpareVerb::Remove { path }) => {
            session.answer(&session.client()?.remove_spare(&Spare { path })?, show)?;
        }
        Verb::Scrub { wait, stop, every, never } => {
            if every.is_some() || never {
                let set = session.client()?.set_scrub(&SetScrub { every: every.map(SpanInput) })?;
                session.answer(&set, scrub_schedule)?;
            } else if stop {
                session.answer(&session.client()?.stop_scrub()?, scrub_report)?;
            } else {
                return scrub(session, wait);
            }
        }
        Verb::Create { pool, stack, size } => {
            server::create_stack(&pool, &stack, size.map(Size::bytes))?;
            let answer = json!({ "pool": pool, "stack": stack });
            session.answer(&answer, |_| String::new())?;
            say(&format!("made; start it with: hindsight serve --pool {}", pool.display()));
        }
        Verb::Inspect { pool } => {
            session.answer(&inspect(&pool)?, |copies| copies.concat())?;
        }
        Verb::Grow { pool: Some(pool), add, size } => {
            let (from, to) = server::grow(&pool, add.as_deref(), size.map(Size::bytes))?;
            let answer = json!({ "pool": pool, "from_bytes": from, "size_bytes": to });
            session.answer(&answer, |_| pairs(&[("size", human(to)), ("was", human(from))]))?;
        }
        Verb::Grow { pool: None, add, size } => {
            let body = GrowPool { add, size: size.map(SizeInput) };
            session.answer(&session.client()?.grow_pool(&body)?, show)?;
        }
        Verb::Rebuild { pool } => return rebuild(session, &pool),
    }
    Ok(ExitCode::Done)
}

/// Throws the map away and builds it again from the log.
fn rebuild(session: &Session, pool: &Path) -> anyhow::Result<ExitCode> {
    say("rebuilding the map from the log");
    let report = server::rebuild(pool)?;
    let answer = json!({
        "segments": report.segments, "writes": report.writes,
        "damaged_bytes": report.damaged_bytes,
    });
    session.answer(&answer, |_| {
        pairs(&[
            ("segments", report.segments.to_string()),
            ("writes", report.writes.to_string()),
            ("damaged", human(report.damaged_bytes)),
        ])
    })?;
    if report.damaged_bytes > 0 {
        return Ok(ExitCode::Partly);
    }
    Ok(ExitCode::Done)
}

/// How often a scrub that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Begins a scrub, and waits for it if told to.
fn scrub(session: &Session, wait: bool) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    let job = client.scrub()?;
    if !wait {
        session.answer(&job, |_| String::new())?;
        say("a scrub is running; `hindsight pool status` shows how far it is");
        return Ok(ExitCode::Done);
    }
    loop {
        let scrub = client.pool()?.scrub.context("the server knows of no scrub")?;
        if scrub.state != "running" {
            session.answer(&scrub, scrub_report)?;
            let is_whole = scrub.state == "done" && scrub.lost == 0;
            return Ok(if is_whole { ExitCode::Done } else { ExitCode::Partly });
        }
        std::thread::sleep(LOOK);
    }
}

fn scrub_schedule(set: &SetScrub) -> String {
    match set.every {
        Some(every) => format!("a scrub every {}\n", every.0),
        None => "a scrub only when asked for\n".to_owned(),
    }
}

/// What came of a scrub, in one line.
fn scrub_line(scrub: &Scrub) -> String {
    let found = match (scrub.wrong, scrub.lost) {
        (0, 0) => "nothing wrong".to_owned(),
        (wrong, lost) => {
            let repaired = match scrub.repaired {
                0 => String::new(),
                repaired => format!("{repaired} repaired from another version, "),
            };
            let elsewhere = match scrub.elsewhere {
                0 => String::new(),
                elsewhere => format!("{elsewhere} in packs had from another version, "),
            };
            format!("{wrong} wrong, {} healed, {repaired}{elsewhere}{lost} lost", scrub.healed)
        }
    };
    let state = match (&scrub.ended, scrub.state.as_str()) {
        (None, _) => format!("running, {} %", scrub.progress_percent),
        (Some(ended), state) => format!("{state} {ended}"),
    };
    format!("{state}: {} read, {found}", human(scrub.read_bytes))
}

fn scrub_report(scrub: &Scrub) -> String {
    let losses = scrub.losses.iter().map(|loss| format!("lost: {loss}\n"));
    format!("{}\n{}", scrub_line(scrub), losses.collect::<String>())
}

/// Every copy of the superblock as text, or of the members' labels, or what is wrong with it; takes
/// no lock, writes nothing.
fn inspect(pool: &Path) -> anyhow::Result<Vec<String>> {
    let members = server::member_paths(pool)?;
    let mut copies: Vec<String> =
        members.iter().map(|member| labels(member)).collect::<anyhow::Result<_>>()?;
    // Below layers nobody sees superblocks.
    let (path, start) = match &members[..] {
        [] => (server::pool_path(pool)?, 0),
        [one] if is_without_layers(one) => (one.clone(), label::AREA_BYTES),
        _ => return Ok(copies),
    };
    let shown = path.display().to_string();
    let file = File::open(&path).with_context(|| format!("cannot open {shown}"))?;
    for (number, offset) in COPY_OFFSETS.into_iter().enumerate() {
        let (mut bytes, offset) = ([0; PAGE_BYTES], start + offset);
        file.read_exact_at(&mut bytes, offset).with_context(|| format!("cannot read {shown}"))?;
        let text = match Superblock::decode(&bytes, number) {
            Ok(superblock) => superblock.explain(),
            Err(error) => format!("unusable: {error}\n"),
        };
        copies.push(format!("copy {number} at byte {offset}: {text}"));
    }
    Ok(copies)
}

fn healed(pool: &Pool) -> String {
    let healed = pool.healed;
    match (healed.transient, healed.unrecoverable) {
        (0, 0) => healed.recovered.to_string(),
        (again, lost) => {
            format!("{}; right when read again {again}; lost {lost}", healed.recovered)
        }
    }
}

/// The members of a pool that is made of several, as a table.
fn members(pool: &Pool) -> String {
    if pool.members.is_empty() {
        return String::new();
    }
    let state = |member: &Member| match member.present {
        true => member.state.clone(),
        false => format!("{}, not there", member.state),
    };
    let members = Table::of(&pool.members)
        .left("MEMBER", |member| member.path.clone())
        .left("STATE", |member| state(member))
        .right("SIZE", |member| human(member.size_bytes))
        .right("ERRORS", |member| member.errors.to_string())
        .right("READ", |member| human(member.read_bytes))
        .right("WRITTEN", |member| human(member.written_bytes))
        .text();
    let behind = match pool.behind_bytes {
        0 => String::new(),
        bytes => format!("{} still to be brought up to date\n", human(bytes)),
    };
    format!("\n{members}{behind}")
}

/// Whether a label says that a member is all there is of a pool.
fn is_without_layers(member: &Path) -> bool {
    let Ok(file) = File::open(member) else { return false };
    label::COPY_OFFSETS.into_iter().enumerate().any(|(number, offset)| {
        let mut bytes = vec![0; label::layout::BYTES];
        let is_read = file.read_exact_at(&mut bytes, offset).is_ok();
        is_read && Label::decode(&bytes, number).is_ok_and(|label| label.stack == "0")
    })
}

/// Every copy of a member's label as text, or what is wrong with it.
fn labels(member: &Path) -> anyhow::Result<String> {
    let shown = member.display().to_string();
    let file = match File::open(member) {
        Ok(file) => file,
        Err(error) => return Ok(format!("{shown}: {error}\n")),
    };
    let mut text = String::new();
    for (number, offset) in label::COPY_OFFSETS.into_iter().enumerate() {
        let mut bytes = vec![0; label::layout::BYTES];
        file.read_exact_at(&mut bytes, offset).with_context(|| format!("cannot read {shown}"))?;
        let copy = match Label::decode(&bytes, number) {
            Ok(label) => label.explain(),
            Err(error) => format!("unusable: {error}\n"),
        };
        text += &format!("{shown} copy {number} at byte {offset}: {copy}");
    }
    Ok(text)
}

fn audit(session: &Session, after: u64) -> anyhow::Result<Vec<AuditRecord>> {
    let client = session.client()?;
    let page =
        |next: Option<u64>| client.audit(&ListQuery { next: next.or(Some(after)), limit: None });
    Ok(Page::all(page)?)
}

fn show(pool: &Pool) -> String {
    let mut lines = vec![
        ("id", pool.id.clone()),
        ("state", pool.state.clone()),
        ("layers", pool.layers.clone()),
        ("format", pool.format_version.to_string()),
        ("server", pool.server_version.clone()),
        ("volumes", pool.volumes.to_string()),
        ("size", human(pool.size_bytes)),
        ("used", human(pool.used_bytes)),
        ("free", human(pool.free_bytes)),
        ("available", human(pool.available_bytes)),
        ("promised", human(pool.promised_bytes)),
        ("full", format!("{} %", pool.fill_percent)),
        ("reclaimable", human(pool.reclaimable_bytes)),
        ("log", human(pool.log_bytes)),
        ("map", human(pool.map_bytes)),
        ("current stores", human(pool.current_bytes)),
        ("catalogue", human(pool.catalogue_bytes)),
        ("pending entries", pool.pending_entries.to_string()),
        ("checksum errors", pool.checksum_errors.to_string()),
        ("healed", healed(pool)),
    ];
    lines.extend([
        ("live", space::bound(pool.live_bytes, pool.live_exact)),
        ("history", human(pool.history_bytes)),
        ("pinned", human(pool.pinned_bytes)),
        ("growth", space::growth(pool.growth.as_ref())),
    ]);
    if pool.trash_volumes > 0 {
        let volumes = count(pool.trash_volumes, "deleted volume");
        lines.push(("trash", format!("{} of {volumes}", human(pool.trash_bytes))));
    }
    if pool.common_named_bytes > 0 {
        let (named, stored) = (human(pool.common_named_bytes), human(pool.common_bytes));
        lines.push(("common", format!("{named} of several volumes in {stored}")));
    }
    lines.extend(pool.scrub.as_ref().map(|scrub| ("scrub", scrub_line(scrub))));
    lines.extend(pool.scrub_every.map(|every| ("scrub every", every.0.to_string())));
    let rates = [("scrub rate", pool.scrub_rate_bytes), ("rebuild rate", pool.rebuild_rate_bytes)];
    let limited =
        |(name, limit): (_, Option<u64>)| Some((name, format!("{} a second", human(limit?))));
    lines.extend(rates.into_iter().filter_map(limited));
    lines.extend(pool.write_buffers.iter().map(|one| ("write buffer", write_buffer(one))));
    lines.extend(pool.full_in.map(|span| ("full in", space::rough(span.0))));
    lines.extend(pool.next_sacrifice.as_ref().map(|next| ("next to go", next_to_go(next))));
    lines.extend(pool.warning.clone().map(|warning| ("warning", warning)));
    pairs(&lines) + &members(pool)
}

/// How writes to a file or disk wait.
fn write_buffer(buffer: &WriteBuffer) -> String {
    let why = buffer.why.as_deref().unwrap_or_default();
    let [size, waiting] = [buffer.size_bytes, buffer.waiting_bytes].map(human);
    match buffer.state.as_str() {
        "in-use" => format!("{size}, {waiting} waiting, of {}", buffer.path),
        state => format!("{state}, of {}: {why}", buffer.path),
    }
}

/// What a full pool would give up.
fn next_to_go(next: &Sacrifice) -> String {
    if next.scratch {
        return format!("{}, a scratch clone", next.volume);
    }
    if next.deleted {
        return format!("{}, which was deleted, with its history", next.volume);
    }
    let why = if next.grace { ", kept only for a grace period" } else { "" };
    format!("{} from {} to {}{why}", next.volume, next.from.time, next.to.time)
}

fn records(records: &[AuditRecord]) -> String {
    Table::of(records)
        .right("NUMBER", |r| r.number.to_string())
        .left("TIME", |r| r.time.to_string())
        .left("ACTION", |r| r.action.clone())
        .left("VOLUME", |r| r.volume.clone())
        .left("WHO", |r| r.who.as_ref().or(r.caller.as_ref()).cloned().unwrap_or_default())
        .left("DETAIL", |r| r.detail.clone())
        .text()
}
