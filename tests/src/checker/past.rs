//! Comparing exports with images, and diffs with both.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::link::over_iscsi;
use super::plan::Op;
use super::settle::precedes;
use super::subject::{Moment, Subject, number};
use crate::client::Client;
use crate::http::escape;
use crate::image::{Image, PAGE_BYTES};
use crate::nbd::{Nbd, Refused, Reply, Request};
use crate::random::Random;
use crate::server::Server;

/// Compares an export with an image: all of it, or some ranges of it.
pub(super) fn compare(
    link: &mut dyn Client,
    image: &Image,
    whole: bool,
    random: &mut Random,
) -> Result<()> {
    ensure!(
        link.size() == image.size(),
        "it has {} bytes instead of {}",
        link.size(),
        image.size()
    );
    if whole {
        let step = 1 << 20;
        let mut at = 0;
        while at < image.size() {
            let length = step.min(image.size() - at);
            compare_range(link, image, at, length)?;
            at += length;
        }
    } else {
        for _ in 0..8 {
            let (offset, length) = super::plan::range_of(random, image.size(), link.unit());
            compare_range(link, image, offset, length)?;
        }
    }
    Ok(())
}

fn compare_range(link: &mut dyn Client, image: &Image, offset: u64, length: u64) -> Result<()> {
    let bytes = link.read(offset, length)?;
    if let Some(at) = image.first_difference(offset, &bytes) {
        let show = 16.min(offset + length - at);
        let start = usize::try_from(at - offset)?;
        bail!(
            "byte {at} (block {}): found {:02x?}, expected {:02x?}",
            at / PAGE_BYTES,
            &bytes[start..start + usize::try_from(show)?],
            image.read(at, show)
        );
    }
    Ok(())
}

/// Every hole of the export must read as zeros.
pub(super) fn check_holes(link: &mut Nbd, image: &Image) -> Result<()> {
    ensure!(link.has_status(), "the server does not know base:allocation");
    let mut at = 0;
    for run in link.status()? {
        ensure!(run.flags < 4, "base:allocation with flags {}", run.flags);
        if run.flags != 0 {
            let bytes = vec![0; run.length as usize];
            if let Some(byte) = image.first_difference(at, &bytes) {
                bail!("byte {byte} lies in a hole at {at} of {} bytes but is data", run.length);
            }
        }
        at += u64::from(run.length);
    }
    Ok(())
}

/// Opens a recorded moment under one of its names and compares it.
pub(super) fn check_moment(
    server: &Server,
    subject: &Subject,
    moment: &Moment,
    whole: bool,
    random: &mut Random,
) -> Result<()> {
    let sure = subject.sure_names(moment);
    let must_open = !sure.is_empty();
    let name = match must_open {
        true => sure[random.index(sure.len())],
        false => &moment.names[random.index(moment.names.len())],
    };
    let export = format!("{}@{name}", subject.name);
    let first = subject.resolve(&server.http(), name);
    if must_open {
        let (seq, exact) = first?;
        ensure!(seq == moment.seq, "{export} resolves to seq {seq}, not {}", moment.seq);
        ensure!(exact || !name.starts_with("seq:"), "{export} is not exact");
    } else if !matches!(first, Ok((seq, true)) if seq == moment.seq) {
        return Ok(());
    }
    // What is not kept may go between the question and the answer.
    let has_gone = || !must_open && !matches!(subject.resolve(&server.http(), name), Ok((_, true)));
    let mut link = match server.connect(&export) {
        Err(_) if has_gone() => return Ok(()),
        link => link?,
    };
    ensure!(link.is_read_only(), "{export} can be written");
    let outcome = compare(&mut link, &moment.image, whole, random)
        .and_then(|()| if whole { check_holes(&mut link, &moment.image) } else { Ok(()) });
    if has_gone() {
        return Ok(());
    }
    outcome.with_context(|| format!("{export} (seq {})", moment.seq))
}

/// Opens a recorded moment over iSCSI and compares all of it, if it is sure to be there; how many
/// sessions that took.
pub(super) fn check_over_iscsi(
    server: &Server,
    subject: &Subject,
    moment: &Moment,
    random: &mut Random,
) -> Result<u64> {
    let sure = subject.sure_names(moment);
    if sure.is_empty() {
        return Ok(0);
    }
    let name = sure[random.index(sure.len())];
    let opened = over_iscsi(server, &subject.name, Some(name), random);
    // The window goes on while a client connects.
    if !subject.sure_names(moment).contains(&name) {
        return Ok(0);
    }
    let what = || format!("{}:at:{name} (seq {}) over iSCSI", subject.name, moment.seq);
    let mut link = opened.with_context(what)?;
    ensure!(link.is_read_only(), "{} can be written", what());
    compare(&mut link, &moment.image, true, random).with_context(what)?;
    Ok(1)
}

/// A view must refuse every change.
pub(super) fn check_refuses_writes(server: &Server, export: &str) -> Result<()> {
    let mut link = server.connect(export)?;
    let length = 512;
    let requests = [
        Request::Write { offset: 0, bytes: vec![1; 512], fua: false },
        Request::Trim { offset: 0, length, fua: false },
        Request::Zero { offset: 0, length, no_hole: false, fast: false },
    ];
    for request in requests {
        match link.ask(&request)? {
            Reply::Error(crate::nbd::EPERM) => {}
            other => bail!("{export}: {request:?} gave {other:?} instead of EPERM"),
        }
    }
    Ok(())
}

/// An export must not be there.
pub(super) fn check_refused(server: &Server, export: &str) -> Result<()> {
    match server.connect(export) {
        Ok(_) => bail!("{export} opens"),
        Err(error) if error.downcast_ref::<Refused>().is_some() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Asks for a diff page by page and compares it with what differs between two images.
pub(super) fn check_diff(
    server: &Server,
    subject: &Subject,
    from: (&str, &Image),
    to: (&str, &Image),
    limit: u64,
) -> Result<()> {
    let ranges = diff(server, subject, from.0, to.0, limit)?;
    let name = format!("diff {}@{} {}@{}", subject.name, from.0, subject.name, to.0);
    compare_ranges(&ranges, from.1, to.1).context(name)
}

/// The same through block status in `x-hindsight:changed@MOMENT` of the later export.
pub(super) fn check_changed_context(
    server: &Server,
    subject: &Subject,
    from: (&str, &Image),
    to: (&str, &Image),
) -> Result<()> {
    let export = format!("{}@{}", subject.name, to.0);
    let context = format!("x-hindsight:changed@{}", from.0);
    let mut link = Nbd::connect_with_context(&server.nbd_socket(), &export, &context)?;
    ensure!(link.has_status(), "{export} does not have {context}");
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    for run in link.status()? {
        ensure!(run.flags < 2, "{context} with flags {}", run.flags);
        let length = u64::from(run.length);
        match ranges.last_mut() {
            // Cut where one reply ended and the next began.
            Some(last) if run.flags == 1 && last.0 + last.1 == at => last.1 += length,
            _ if run.flags == 1 => ranges.push((at, length)),
            _ => {}
        }
        at += length;
    }
    compare_ranges(&ranges, from.1, to.1).with_context(|| format!("{export} {context}"))
}

fn compare_ranges(ranges: &[(u64, u64)], from: &Image, to: &Image) -> Result<()> {
    let shorter = from.size().min(to.size());
    let longer = from.size().max(to.size());
    let mut end = 0;
    for &(offset, length) in ranges {
        ensure!(length > 0 && offset >= end, "ranges overlap or descend at {offset}");
        end = offset + length;
        ensure!(end <= longer, "a range ends at {end}, beyond {longer}");
    }
    for page in 0..longer.div_ceil(PAGE_BYTES) {
        let (start, stop) = (page * PAGE_BYTES, ((page + 1) * PAGE_BYTES).min(longer));
        let differs = !from.page_equals(to, page);
        let is_covered = ranges.iter().any(|&(o, l)| o <= start && stop <= o + l);
        let is_touched = ranges.iter().any(|&(o, l)| o < stop && start < o + l);
        // What only one of the two has may be reported or not.
        let is_beyond = stop > shorter;
        ensure!(is_covered || !differs || is_beyond, "block {page} differs and is not reported");
        ensure!(differs || !is_touched || is_beyond, "block {page} is reported and is the same");
    }
    Ok(())
}

fn diff(
    server: &Server,
    subject: &Subject,
    from: &str,
    to: &str,
    limit: u64,
) -> Result<Vec<(u64, u64)>> {
    let query = format!("/diff?from={}&to={}&limit={limit}", escape(from), escape(to));
    let mut ranges = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let page = next.as_ref().map(|next| format!("&next={next}")).unwrap_or_default();
        let target = subject.path(&(query.clone() + &page));
        let answer = server.http().call("GET", &target, None)?;
        ensure!(answer.status == 200, "GET {target}: {}", answer.status);
        let list = answer.json()?;
        let list = list.as_array().context("a diff is a list")?.clone();
        ensure!(list.len() as u64 <= limit, "a page of {} ranges", list.len());
        for range in &list {
            ranges.push((number(&range["offset"])?, number(&range["length"])?));
        }
        let following = answer.next_page();
        ensure!(following.is_none() || following != next, "a page that follows itself");
        if following.is_none() {
            return Ok(ranges);
        }
        next = following;
    }
}

/// Opens moments between two recorded ones: every block of a request is in them or is not, none
/// goes away again, and an order that clients saw is kept.
///
/// A request is not one seq: the server cuts it where blocks begin and where it gets long.
pub(super) fn check_between(
    server: &Server,
    subject: &Subject,
    before: (u64, &Image),
    after_seq: u64,
    ops: &[Op],
    random: &mut Random,
) -> Result<()> {
    let mut seqs: Vec<u64> =
        (0..3).map(|_| random.between(before.0, after_seq)).filter(|s| *s > before.0).collect();
    seqs.sort_unstable();
    let pieces: Vec<Piece> = ops.iter().flat_map(|op| pieces(op, before.1)).collect();
    let mut there_before = vec![false; pieces.len()];
    for seq in seqs {
        let export = format!("{}@seq:{seq}", subject.name);
        let found = server.connect(&export)?.read(0, before.1.size())?;
        let there = pieces_there(before.1, &pieces, &found).with_context(|| export.clone())?;
        for (piece, (now, earlier)) in pieces.iter().zip(there.iter().zip(&there_before)) {
            ensure!(*now || !earlier, "{export}: {} bytes went away again", piece.length);
        }
        check_order(&pieces, &there).with_context(|| export.clone())?;
        there_before = there;
    }
    Ok(())
}

/// The part of a request that lies in one block and changes something.
struct Piece<'a> {
    op: &'a Op,
    offset: u64,
    length: u64,
}

fn pieces<'a>(op: &'a Op, before: &Image) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    let (mut at, end) = (op.offset, op.offset + op.length);
    while at < end {
        let stop = end.min((at / PAGE_BYTES + 1) * PAGE_BYTES);
        if before.first_difference(at, &op.bytes(at, stop - at)).is_some() {
            pieces.push(Piece { op, offset: at, length: stop - at });
        }
        at = stop;
    }
    pieces
}

/// For each piece whether it is there; whatever else is found must be as before.
fn pieces_there(before: &Image, pieces: &[Piece<'_>], found: &[u8]) -> Result<Vec<bool>> {
    let mut expected = before.clone();
    let mut there = Vec::new();
    for piece in pieces {
        let range = usize::try_from(piece.offset)?..usize::try_from(piece.offset + piece.length)?;
        let bytes = piece.op.bytes(piece.offset, piece.length);
        there.push(found[range] == bytes);
        if there.last() == Some(&true) {
            expected.write(piece.offset, &bytes);
        }
    }
    if let Some(at) = expected.first_difference(0, found) {
        bail!("byte {at} is neither before nor after the writes of its storm");
    }
    Ok(there)
}

/// What was acknowledged before something was sent is there if that is, wholly.
fn check_order(pieces: &[Piece<'_>], there: &[bool]) -> Result<()> {
    let absent: Vec<&Op> =
        pieces.iter().zip(there).filter(|(_, there)| !**there).map(|(piece, _)| piece.op).collect();
    for (piece, _) in pieces.iter().zip(there).filter(|(_, there)| **there) {
        ensure!(
            !absent.iter().any(|earlier| precedes(earlier, piece.op)),
            "a write is there without one that was acknowledged before it was sent"
        );
    }
    Ok(())
}

/// What a revert reports must not be less than what differs; it may count blocks that were written
/// anew with the same bytes.
pub(super) fn check_changed(answer: &Value, from: &Image, to: &Image) -> Result<()> {
    let reported = number(&answer["changed_bytes"])?;
    let pages = from.size().max(to.size()).div_ceil(PAGE_BYTES);
    let differing = (0..pages).filter(|&page| !from.page_equals(to, page)).count() as u64;
    ensure!(
        reported + PAGE_BYTES >= differing * PAGE_BYTES,
        "changed_bytes is {reported}, but {differing} blocks differ"
    );
    Ok(())
}
