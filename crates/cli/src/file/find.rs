//! `file find`: when something was at a path.

use api::{ExitCode, Time, path_text};
use serde::Serialize;

use super::history::{Depth, End, Search, SearchArgs, Span, window};
use super::view::{Reading, Volume, judge};
use crate::failure::Failure;
use crate::output::{Table, count};
use crate::session::{Session, say};

#[derive(Serialize)]
struct Found {
    kind: String,
    inode: u64,
    /// The first and the last moment at which it was there.
    first: u64,
    first_time: Time,
    last: u64,
    last_time: Time,
}

pub fn run(session: &Session, args: &SearchArgs) -> anyhow::Result<ExitCode> {
    let reading = Reading::without_moment(&args.of)?;
    let volume = Volume::find(session, &reading.of.volume)?;
    let (first, last) = window(&volume, args)?;
    let mut search = Search::new(&volume, &reading, Depth::Presence)?;
    let spans = search.run(first, last).map_err(judge)?;
    let looks = search.looks();
    let mut found = Vec::new();
    for Span { first, last, end } in spans {
        let End::There(known, ..) = end else { continue };
        let time = |seq: u64| Ok::<_, anyhow::Error>(volume.resolve(&format!("seq:{seq}"))?.time);
        found.push(Found {
            kind: known.kind.word().to_owned(),
            inode: known.identity.inode,
            first,
            first_time: time(first)?,
            last,
            last_time: time(last)?,
        });
    }
    let path = path_text(reading.path()?);
    let Some(newest) = found.last() else {
        let text = format!("{path} was not there at {}", count(looks, "moment"));
        return Err(Failure { code: ExitCode::NotFound, ..Failure::new(text) }.into());
    };
    let name = format!("{}@seq:{}:{}{path}", volume.name, newest.last, reading.part);
    session.answer(&found, |found| {
        Table::of(found)
            .right("FIRST", |one| one.first.to_string())
            .left("TIME", |one| one.first_time.to_string())
            .right("LAST", |one| one.last.to_string())
            .left("TIME", |one| one.last_time.to_string())
            .left("KIND", |one| one.kind.clone())
            .right("INODE", |one| one.inode.to_string())
            .text()
    })?;
    say(&format!("{} looked at; the newest: {name}", count(looks, "moment")));
    Ok(ExitCode::Done)
}
