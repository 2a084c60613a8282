//! The paths of a share that differ between two moments.

use std::ops::Range;
use std::sync::Arc;

use ::share::{Difference, Wait, differences};
use api::{API_PREFIX, FileDiffQuery, FileDifference, path_text};
use axum::extract::State;
use units::{BLOCK_BYTES, Inode, Moment};
use volume::Volume;

use super::answer::{Answer, Listed};
use super::ask::{Asked, Named};
use super::context::{Context, moment, page_entries};
use super::files::{in_url, kind_name, open, refusal};
use super::history::RANGES_MAX;

/// The bytes of the volume that inodes are in.
const INODES: Range<u64> = inode_offset(0)..inode_offset(Inode::END.0);

const fn inode_offset(number: u64) -> u64 {
    ::share::inode_block(Inode(number)) * BLOCK_BYTES
}

/// Lists the paths that differ between two moments: of this share, or of it and another one with
/// which it has a past in common. Below a directory that was renamed only that is listed which
/// changed itself.
#[utoipa::path(get, path = "/shares/{share}/diff", tag = "shares",
    params(FileDiffQuery),
    responses(
        (status = 200, body = Vec<FileDifference>, headers(("Link" = String))),
        (status = 410, description = "A moment lies outside the window"),
        (status = 422, description = "The two shares have no past in common"),
    ))]
pub(super) async fn diff(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<FileDiffQuery>,
) -> Answer<Listed<FileDifference>> {
    let from = moment(&query.from)?;
    let to = query.to.as_deref().map_or(Ok(Moment::Latest), moment)?;
    let limit = page_entries(query.limit, RANGES_MAX)?;
    let first = query.next.unwrap_or(0).min(Inode::END.0);
    let compare = move |context: &Context| {
        let other_name = query.to_share.as_deref().unwrap_or(&name);
        let (share, other) = (open(context, &name)?, open(context, other_name)?);
        // Every page speaks of the same two moments, however long the client takes.
        let from = Moment::Seq(share.volume().resolve(&from)?.seq);
        let to = Moment::Seq(other.volume().resolve(&to)?.seq);
        let both = Both { from: (share.volume(), &from), to: (other.volume(), &to) };
        let (numbers, next) = both.numbers(first, limit)?;
        let opened = |share: &crate::nfs::Opened, of: &str, at: &Moment| {
            share.open_moment(at).map_err(|error| refusal(error, of, b"/"))
        };
        let (_, before) = opened(&share, &name, &from)?;
        let (_, after) = opened(&other, other_name, &to)?;
        let (before, after) = (before.tree(Wait::May), after.tree(Wait::May));
        let found = differences(&before, &after, numbers, &|first, blocks| {
            both.differ(first * BLOCK_BYTES, blocks * BLOCK_BYTES)
        });
        let found = found.map_err(|error| refusal(error, &name, b"/"))?;
        let next = next.map(|next| {
            let of = query.to_share.as_deref().map(|of| format!("&to_share={}", in_url(of)));
            let of = of.unwrap_or_default();
            let page = format!("from={from}&to={to}{of}&limit={limit}&next={next}");
            format!("{API_PREFIX}/shares/{}/diff?{page}", in_url(&name))
        });
        Ok(Listed { entries: found.into_iter().map(told).collect(), next })
    };
    context.engine(compare).await
}

/// Two moments.
struct Both<'a> {
    from: (&'a Arc<Volume>, &'a Moment),
    to: (&'a Arc<Volume>, &'a Moment),
}

impl Both<'_> {
    /// The numbers of inodes from `first` on whose blocks differ, and where to go on.
    fn numbers(&self, first: u64, limit: usize) -> Answer<(Vec<Inode>, Option<u64>)> {
        let mut numbers = Vec::new();
        let mut next = Some(inode_offset(first));
        while let Some(offset) = next.filter(|offset| *offset < INODES.end) {
            let (from, to) = (self.from.0, (self.to.0, self.to.1));
            let page = from.diff_with(self.from.1, to, offset, limit)?;
            next = page.next_offset;
            for range in page.ranges {
                let number = |offset: u64| (offset.min(INODES.end) - INODES.start) / BLOCK_BYTES;
                for number in number(range.offset)..number(range.offset + range.length_bytes) {
                    if numbers.len() == limit {
                        return Ok((numbers, Some(number)));
                    }
                    numbers.push(Inode(number));
                }
            }
        }
        Ok((numbers, None))
    }

    /// Whether bytes of the volumes were written between the two.
    fn differ(&self, offset: u64, length_bytes: u64) -> ::share::Result<bool> {
        let (from, to) = (self.from.0, (self.to.0, self.to.1));
        if Arc::ptr_eq(from, to.0) {
            let page = from.diff(self.from.1, to.1, offset, length_bytes, 1)?;
            return Ok(!page.ranges.is_empty());
        }
        let page = from.diff_with(self.from.1, to, offset, 1)?;
        Ok(page.ranges.first().is_some_and(|range| range.offset < offset + length_bytes))
    }
}

fn told(difference: Difference) -> FileDifference {
    let Difference { before, after, kind, has_other_content, has_other_attributes } = difference;
    let text = |path: Option<Vec<u8>>| path.map(|path| path_text(&path));
    let (before, after) = (text(before), text(after));
    let (path, path_before, change) = match (before, after) {
        (Some(before), Some(after)) if before == after => (after, None, "changed"),
        (Some(before), Some(after)) => (after, Some(before), "renamed"),
        (None, Some(after)) => (after, None, "created"),
        (before, None) => (before.unwrap_or_default(), None, "removed"),
    };
    FileDifference {
        path,
        change: change.to_owned(),
        path_before,
        kind: kind_name(kind).to_owned(),
        content: has_other_content,
        attributes: has_other_attributes,
    }
}
