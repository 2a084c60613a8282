//! `hindsight group revert`, `clone` and `diff`.

use api::{CloneGroup, Group, GroupReverted, MemberResolved, Range, Revert};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Table, count, human};
use crate::session::{Session, say, tell};
use crate::{diff, moment};

#[derive(Debug, clap::Args)]
pub struct RevertArgs {
    /// Name of the group.
    group: String,
    /// The moment to make present: a time, v:N of the group, a mark of each volume, or
    /// VOLUME=MOMENT,... of each volume.
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    to: String,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Revert although clients are attached; they are disconnected.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
pub struct CloneArgs {
    /// The moment the clones start at; a group alone is its present.
    #[arg(value_name = "GROUP[@MOMENT]")]
    source: String,
    /// Name of the new group.
    new: String,
}

#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// One moment; a group alone is its present.
    #[arg(value_name = "GROUP[@MOMENT]")]
    from: String,
    /// The other, of the same group.
    #[arg(value_name = "GROUP[@MOMENT]")]
    to: String,
}

pub fn revert(session: &Session, args: &RevertArgs) -> anyhow::Result<()> {
    let to = match args.to.contains('=') {
        true => args.to.clone(),
        false => moment::read(&args.to)?.to_string(),
    };
    let body = Revert { to, dry_run: args.dry_run, force: args.force };
    let reverted = session.client()?.revert_group(&args.group, &body)?;
    session.answer(&reverted, show)?;
    if args.dry_run {
        tell(&reverted.would);
    } else {
        say(&format!("to undo: hindsight group revert {} --to {}", args.group, reverted.undo));
    }
    Ok(())
}

fn show(reverted: &GroupReverted) -> String {
    let stamp = |s: &api::Stamp| format!("{} (seq:{})", s.time, s.seq);
    Table::of(&reverted.volumes)
        .left("VOLUME", |member| member.volume.clone())
        .left("FROM", |member| stamp(&member.reverted.from))
        .left("TO", |member| stamp(&member.reverted.to))
        .right("CHANGED", |member| human(member.reverted.changed_bytes))
        .text()
}

/// A group and a moment of it, as a request has it.
fn read(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('@') {
        Some((group, at)) if at.contains('=') => Ok((group.to_owned(), at.to_owned())),
        _ => {
            let read = moment::read_of_volume(text)?;
            Ok((read.volume, read.moment.to_string()))
        }
    }
}

pub fn clone(session: &Session, args: CloneArgs) -> anyhow::Result<Group> {
    let (group, at) = read(&args.source)?;
    let body = CloneGroup { name: args.new, at: Some(at) };
    Ok(session.client()?.clone_group(&group, &body)?)
}

pub fn diff(session: &Session, args: &DiffArgs) -> anyhow::Result<()> {
    let (group, from) = read(&args.from)?;
    let (other, to) = read(&args.to)?;
    if group != other {
        let message = format!("{group} and {other} are different groups");
        let hint = "diff compares two moments of one group";
        return Err(Failure::usage(message).with_hint(hint).into());
    }
    let client = session.client()?;
    // Both are fixed at one instant, of all volumes.
    let (from, to) = (client.resolve_group(&group, &from)?, client.resolve_group(&group, &to)?);
    let mut all: Vec<(String, Vec<Range>)> = Vec::new();
    for (one, two) in from.iter().zip(&to) {
        if one.volume != two.volume {
            return Err(Failure::new(format!("group {group} was changed meanwhile")).into());
        }
        let fixed = |member: &MemberResolved| {
            (member.volume.clone(), format!("seq:{}", member.resolved.seq))
        };
        let ranges = diff::between(&client, &fixed(one), &fixed(two))?;
        all.push((one.volume.clone(), ranges));
    }
    let told =
        |(volume, ranges): &(String, Vec<Range>)| json!({"volume": volume, "ranges": ranges});
    let answer: Vec<_> = all.iter().map(told).collect();
    session.answer(&answer, |_| list(&all))?;
    let ranges = || all.iter().flat_map(|(_, ranges)| ranges);
    let bytes = ranges().map(|range| range.length).sum();
    let many = count(ranges().count() as u64, "range");
    say(&format!("{many}, {} differ", human(bytes)));
    Ok(())
}

fn list(all: &[(String, Vec<Range>)]) -> String {
    let of_all = all.iter();
    let rows = of_all.flat_map(|(volume, ranges)| ranges.iter().map(move |range| (volume, range)));
    Table::of(rows)
        .left("VOLUME", |(volume, _)| (*volume).clone())
        .right("OFFSET", |(_, range)| range.offset.to_string())
        .right("LENGTH", |(_, range)| range.length.to_string())
        .text()
}
