//! `hindsight share`.

use api::{
    Allow, Allowed, ChangeShare, Client, CreateShare, ExitCode, Share, SizeInput, SpanInput, Would,
};
use clap::{Args, Subcommand};
use serde_json::json;
use terminal::arguments::{granularity, size, span};
use units::{Granularity, Network, Size, Span};

use crate::failure::Failure;
use crate::output::{Table, human, pairs};
use crate::session::{Session, say};
use crate::volume::{Limit, hook_or_none, limit, on_or_off};
use crate::volume_text::{limit_of, show_dedup, show_encoding, show_grace, show_hook, show_window};
use crate::{share_archive, share_files, share_operations, space, trash};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a share: an empty file tree.
    Create(CreateArgs),
    /// List the shares.
    List,
    /// Show a share: how to mount it, and who is allowed.
    Show {
        /// Name of the share.
        name: String,
    },
    /// Change settings of a share.
    Set(SetArgs),
    /// Delete a share with its history; it can be had back for a while (volume undelete).
    #[command(visible_alias = "rm")]
    Delete(trash::DeleteArgs),
    /// Allow an address or a network to use a share, and say how. Loopback may do all unless an
    /// entry is about it.
    Allow(AllowArgs),
    /// Take the entry of an address or a network away.
    Deny {
        /// Name of the share.
        name: String,
        /// The entry, as `share show` has it.
        #[arg(value_name = "HOST|CIDR", value_parser = network)]
        network: Network,
    },
    /// Put a directory of this machine, or an archive, into a share, which is created if it is not
    /// there. It can be undone.
    Import(share_archive::ImportArgs),
    /// Write a share, or a part of it, at any moment, to a directory or an archive.
    Export(share_archive::ExportArgs),
    /// List a directory of a share, or tell of a file, at any moment.
    Ls(share_files::LsArgs),
    /// Write a file of a share, at any moment, to standard output.
    Cat(share_files::CatArgs),
    /// Put a file, or a directory with all below it, back as it was at a moment. Nothing is lost:
    /// it can be undone.
    Restore(share_files::RestoreArgs),
    /// List who changed what in a share, and when.
    Ops(share_operations::OpsArgs),
    /// List who changed a file, and when; it had the state before each at the seq that is told.
    Log(share_operations::LogArgs),
    /// Undo what a client, a user or a time did to a share, and keep what all others did since. It
    /// can be undone.
    Repair(share_operations::RepairArgs),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name: 1 to 128 of A-Z a-z 0-9 . _ -, a letter or digit first.
    name: String,
    /// Where current data lives: logging, split-stream, redirect or checkpointing
    /// [default: logging].
    #[arg(long, value_name = "ARCHITECTURE")]
    architecture: Option<String>,
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
    /// How versions of blocks that were written over are kept: raw, delta or xor [default: raw].
    #[arg(long, value_name = "ENCODING")]
    encoding: Option<String>,
    /// How long ago a version was written over before it is encoded [default: 10min].
    #[arg(long, value_name = "SPAN", value_parser = span)]
    encode_after: Option<Span>,
    /// Whether equal blocks are stored once, within the share and with its clones: on or off
    /// [default: off].
    #[arg(long, value_name = "ON|OFF", value_parser = on_or_off)]
    dedup: Option<bool>,
    /// When changed names and attributes are durable: stable, before the answer; or server, at the
    /// next flush [default: stable].
    #[arg(long, value_name = "stable|server")]
    metadata: Option<String>,
    /// Whether reads of files are in the operation log, so that `share repair --follow reads` can
    /// follow them: on or off [default: off].
    #[arg(long, value_name = "ON|OFF", value_parser = on_or_off)]
    log_reads: Option<bool>,
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// Name of the share.
    name: String,
    /// When changed names and attributes are durable: stable, before the answer; or server, at the
    /// next flush.
    #[arg(long, value_name = "stable|server")]
    metadata: Option<String>,
    /// Whether reads of files are in the operation log from now on, so that `share repair --follow
    /// reads` can follow them: on or off.
    #[arg(long, value_name = "ON|OFF", value_parser = on_or_off)]
    log_reads: Option<bool>,
    /// Where current data lives: logging, split-stream, redirect or checkpointing. Changes at once;
    /// data moves in the background, history stays.
    #[arg(long, value_name = "ARCHITECTURE")]
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
    /// How versions of blocks that were written over are kept: raw, delta or xor.
    #[arg(long, value_name = "ENCODING")]
    encoding: Option<String>,
    /// How long ago a version was written over before it is encoded.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    encode_after: Option<Span>,
    /// Whether equal blocks are stored once: on or off. What is shared stays so.
    #[arg(long, value_name = "ON|OFF", value_parser = on_or_off)]
    dedup: Option<bool>,
    /// A hook of the server's configuration around captures that name none; none takes it away.
    #[arg(long, value_name = "NAME")]
    hook: Option<String>,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub struct AllowArgs {
    /// Name of the share.
    name: String,
    /// An address or a network, such as 10.0.0.7, 10.1.0.0/16 or fd00::/8. Of those that contain
    /// an address the smallest decides.
    #[arg(value_name = "HOST|CIDR", value_parser = network)]
    network: Network,
    /// It may only read.
    #[arg(long)]
    ro: bool,
    /// Who is taken for nobody: the superuser, all, or none [default: root].
    #[arg(long, value_name = "root|all|none")]
    squash: Option<String>,
    /// The user that nobody is [default: 65534].
    #[arg(long, value_name = "N")]
    anon_uid: Option<u32>,
    /// The group of nobody [default: 65534].
    #[arg(long, value_name = "N")]
    anon_gid: Option<u32>,
    /// It may come from any port, not only from those below 1024, which a superuser alone can have.
    #[arg(long)]
    any_port: bool,
    /// Who may look into the past: nobody, the superuser, or all by the modes of then
    /// [default: all].
    #[arg(long, value_name = "none|root|all")]
    past: Option<String>,
}

fn network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|e: units::Malformed| match e.hint {
        Some(hint) => format!("{}; {hint}", e.message),
        None => e.message,
    })
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Create(args) => {
            let share = session.client()?.create_share(&args.body())?;
            session.answer(&share, show)?;
        }
        Verb::List => session.answer(&session.client()?.shares()?, |all| list(all))?,
        Verb::Show { name } => session.answer(&session.client()?.share(&name)?, show)?,
        Verb::Set(args) => set(session, &args)?,
        Verb::Delete(args) => trash::delete(session, &args, Client::remove_share)?,
        Verb::Allow(args) => {
            let share = session.client()?.allow_share(&args.name, &args.body())?;
            session.answer(&share, show)?;
        }
        Verb::Deny { name, network } => {
            session.client()?.deny_share(&name, &network.to_string())?;
            say(&format!("{network} has no entry in {name} any more"));
            let answer = json!({"share": name, "network": network, "denied": true});
            session.answer(&answer, |_| String::new())?;
        }
        Verb::Import(args) => return share_archive::import(session, &args),
        Verb::Export(args) => return share_archive::export(session, &args),
        Verb::Ls(args) => share_files::ls(session, &args)?,
        Verb::Cat(args) => share_files::cat(session, &args)?,
        Verb::Restore(args) => return share_files::restore(session, &args),
        Verb::Ops(args) => share_operations::ops(session, &args)?,
        Verb::Log(args) => share_operations::log(session, &args)?,
        Verb::Repair(args) => return share_operations::repair(session, &args),
    }
    Ok(ExitCode::Done)
}

impl CreateArgs {
    fn body(self) -> CreateShare {
        CreateShare {
            name: self.name,
            architecture: self.architecture,
            granularity: self.granularity,
            window: self.window.map(SpanInput),
            history_limit: self.history_limit.map(SizeInput),
            encoding: self.encoding,
            encode_after: self.encode_after.map(SpanInput),
            dedup: self.dedup,
            metadata: self.metadata,
            log_reads: self.log_reads,
        }
    }
}

impl AllowArgs {
    fn body(&self) -> Allow {
        Allow {
            network: self.network.to_string(),
            read_only: self.ro,
            squash: self.squash.clone(),
            anonymous_uid: self.anon_uid,
            anonymous_gid: self.anon_gid,
            any_port: self.any_port,
            past: self.past.clone(),
        }
    }
}

impl SetArgs {
    fn names_history(&self) -> bool {
        self.window.is_some() || self.history_limit.is_some() || self.now
    }

    fn body(&self) -> ChangeShare {
        ChangeShare {
            metadata: self.metadata.clone(),
            log_reads: self.log_reads,
            architecture: self.architecture.clone(),
            granularity: self.granularity,
            window: self.window.map(SpanInput),
            history_limit: self.history_limit.map(Limit::input),
            grace: if self.now { Some(SpanInput(Span(0))) } else { self.grace.map(SpanInput) },
            encoding: self.encoding.clone(),
            encode_after: self.encode_after.map(SpanInput),
            dedup: self.dedup,
            hook: self.hook.clone().map(hook_or_none),
        }
    }

    /// What would be changed, in sentences.
    fn told(&self, share: &Share) -> Vec<String> {
        let older = match self.window {
            Some(window) if window < share.window.0 => match (self.now, self.grace) {
                (true, _) => ": history older than the new window would be lost at once".to_owned(),
                (false, grace) => {
                    let grace = grace.map_or("1d".to_owned(), |grace| grace.to_string());
                    format!(": history older than the new window would be kept for {grace}")
                }
            },
            _ => String::new(),
        };
        let limit = self.history_limit.map(|limit| limit_of(limit.input().map(|l| l.0.0)));
        let on_or_off = |on: bool| if on { "on" } else { "off" }.to_owned();
        let settings = [
            ("metadata", self.metadata.clone()),
            ("logging of reads", self.log_reads.map(on_or_off)),
            ("architecture", self.architecture.clone()),
            ("granularity", self.granularity.map(|granularity| granularity.to_string())),
            ("window", self.window.map(|window| format!("{window}{older}"))),
            ("history limit", limit),
            ("encoding", self.encoding.clone()),
            ("age of what is encoded", self.encode_after.map(|after| after.to_string())),
            ("deduplication", self.dedup.map(on_or_off)),
            ("hook", self.hook.clone()),
        ];
        let named = settings.into_iter().filter_map(|(name, to)| Some((name, to?)));
        let mut told: Vec<String> =
            named.map(|(name, to)| format!("the {name} would be {to}")).collect();
        if self.now && self.window.is_none() {
            told.push("a grace period that is under way would end".to_owned());
        }
        told
    }
}

fn set(session: &Session, args: &SetArgs) -> anyhow::Result<()> {
    let body = args.body();
    if (ChangeShare { grace: None, ..body.clone() }) == ChangeShare::default() && !args.now {
        let all = "--metadata, --log-reads, --architecture, --granularity, --window, \
                   --history-limit, --now, --encoding, --encode-after, --dedup, --hook";
        let hint = format!("give one of {all}");
        return Err(Failure::usage("no setting is named").with_hint(hint).into());
    }
    if let (Some(grace), false) = (args.grace, args.names_history()) {
        let text = format!("--grace {grace} goes with --window or --history-limit");
        return Err(Failure::usage(text).into());
    }
    let client = session.client()?;
    if args.dry_run {
        let share = client.share(&args.name)?;
        let told = args.told(&share).into_iter();
        let would: Vec<Would> = told.map(|text| Would::new("change", &args.name, text)).collect();
        return session.would(&would, &share, |_| String::new());
    }
    if args.now {
        session.confirm(&format!("history of {} that is kept no more goes", args.name))?;
    }
    session.answer(&client.change_share(&args.name, &body)?, show)
}

fn list(shares: &[Share]) -> String {
    Table::of(shares)
        .left("NAME", |share| share.name.clone())
        .right("LIVE", |share| human(share.live_bytes))
        .right("HISTORY", |share| human(share.history_bytes))
        .left("GRANULARITY", |share| share.granularity.to_string())
        .right("WINDOW", |share| share.window.0.to_string())
        .left("OLDEST", |share| share.oldest.time.to_string())
        .right("LATEST SEQ", |share| share.latest.seq.to_string())
        .left("STATE", |share| share.state.clone())
        .text()
}

fn show_allowed(allowed: &Allowed) -> String {
    let Allowed { network, squash, anonymous_uid, anonymous_gid, past, .. } = allowed;
    let may = if allowed.read_only { "reads" } else { "reads and writes" };
    let port = if allowed.any_port { "any port" } else { "ports below 1024" };
    format!(
        "{network} {may}, squash {squash} to {anonymous_uid}:{anonymous_gid}, {port}, past {past}"
    )
}

fn show_follower(follower: &api::Follower) -> String {
    let api::Follower { state, waiting, waiting_bytes, followed, left_out, trouble, .. } = follower;
    let waits = format!("{waiting} operations ({}) wait", human(*waiting_bytes));
    let trouble = trouble.as_ref().map_or(String::new(), |trouble| format!("; {trouble}"));
    let lacks = match left_out {
        0 => String::new(),
        count => format!(", {count} objects are left out (see the log)"),
    };
    format!("{state}, {followed} operations done, {waits}{lacks}{trouble}")
}

/// A share for people.
fn show(share: &Share) -> String {
    let stamp = |s: &api::Stamp| format!("{} (seq:{})", s.time, s.seq);
    let mut shown = vec![("name", share.name.clone())];
    match &share.mount[..] {
        [] => shown.push(("mount", "NFS is off: serve --nfs 127.0.0.1:20490".to_owned())),
        lines => shown.extend(lines.iter().map(|line| ("mount", line.clone()))),
    }
    if let Some(relay) = &share.relay {
        let api::Relay { form, listen, primary, clients, .. } = relay;
        shown.push(("relay", format!("{form}: {listen} before {primary}, {clients} connections")));
        shown.extend(relay.follower.iter().map(|follower| ("follower", show_follower(follower))));
    }
    shown.extend(share.allowed.iter().map(|allowed| ("allowed", show_allowed(allowed))));
    shown.extend([
        ("metadata", share.metadata.clone()),
        ("architecture", share.architecture.clone()),
        ("granularity", share.granularity.to_string()),
        ("window", show_window(share.window, share.window_held, share.window_kept)),
        ("history limit", limit_of(share.history_limit)),
        ("state", share.state.clone()),
        ("clients", share.clients.to_string()),
        ("live", space::bound(share.live_bytes, share.live_exact)),
        ("history", human(share.history_bytes)),
        ("pinned", human(share.pinned_bytes)),
        ("oldest", stamp(&share.oldest)),
        ("latest", stamp(&share.latest)),
        ("created", share.created.to_string()),
    ]);
    shown.extend((share.base_bytes > 0).then(|| ("in the base", human(share.base_bytes))));
    shown.extend(share.reads_logged_since.iter().map(|time| ("reads logged", time.to_string())));
    shown.extend(share.hook.iter().map(|hook| ("hook", show_hook(hook, share.hook_known))));
    shown.extend(share.grace.iter().map(|grace| ("grace", show_grace(grace))));
    if let Some(from) = &share.cloned_from {
        shown.push(("cloned from", format!("{}@seq:{}", from.volume, from.seq)));
    }
    if let Some(c) = &share.conversion {
        let (done, total) = (human(c.done_bytes), human(c.total_bytes));
        shown.push(("converting", format!("from {}: {done} of {total} done", c.from)));
    }
    shown.push(("encoding", show_encoding(&share.encoding)));
    shown.push(("dedup", show_dedup(&share.dedup)));
    pairs(&shown)
}
