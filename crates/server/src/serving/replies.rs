//! The answers of jobs: short replies in place, data in the buffers it was read to.

use smallvec::SmallVec;

use crate::buffers::Chain;

/// Bytes of short replies that need no allocation: a few of them.
const SHORT_BYTES: usize = 64;

/// The replies of one job.
#[derive(Default)]
pub(crate) struct Replies {
    /// Short replies.
    pub(crate) done: SmallVec<[u8; SHORT_BYTES]>,
    /// Failures, with words in them.
    pub(crate) words: Vec<u8>,
    /// A reply with data, or with a list: its memory counts.
    pub(crate) data: Option<Chain>,
}

impl Replies {
    /// Bytes to be sent.
    pub(crate) fn len(&self) -> usize {
        self.done.len() + self.words.len() + self.data.as_ref().map_or(0, Chain::reply_bytes)
    }

    /// The pieces to be sent behind the first `skipped` bytes, in order.
    pub(crate) fn pieces(&self, mut skipped: usize) -> impl Iterator<Item = &[u8]> {
        let data = self.data.iter().flat_map(Chain::reply);
        [&self.done[..], &self.words[..]].into_iter().chain(data).filter_map(move |piece| {
            let skip = skipped.min(piece.len());
            skipped -= skip;
            (skip < piece.len()).then(|| &piece[skip..])
        })
    }
}
