//! The mark on the media: what is done at an opening with a memory that it names, and what is
//! written when one comes into use and goes out of it.

use std::io::{self, IoSlice};

use env::{GRAIN_BYTES, Media, Owner, PIECE_BYTES, SharedMemories, SharedMemory};
use format::label::{AREA_BYTES, COPY_OFFSETS, array_of};
use format::write_buffer::{BYTES, Mark, OFFSET};

use super::shared::Shared;
use super::words::{end_writing, forget_dirty, lacking, piece_of, runs};

/// What the last use of media left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: they were closed, or never had a buffer.
    Nothing,
    /// So many bytes in a memory, which are on the media now.
    Written(u64),
    /// The machine was started anew since they were used: what was not flushed then is gone.
    Restarted,
    /// No memory that is theirs: what was acknowledged and not flushed is lost. Why.
    Lost(String),
}

/// A memory in use, with the mark that names it.
pub(super) struct Memory {
    pub(super) slots: Box<dyn SharedMemory>,
    pub(super) mark: Mark,
}

/// Whether media have a label, in whose area a mark can be: any of its copies. One that cannot be
/// read is none.
fn has_label(media: &dyn Media) -> bool {
    let is_label = |&at: &u64| {
        let mut head = [0; BYTES];
        media.read_at(at, &mut head).is_ok() && array_of(&head).is_some()
    };
    media.len_bytes() >= AREA_BYTES && COPY_OFFSETS.iter().any(is_label)
}

/// Writes what a process that died left to its media.
pub(super) fn recover(media: &dyn Media, memories: &dyn SharedMemories) -> io::Result<Found> {
    if !has_label(media) {
        return Ok(Found::Nothing);
    }
    let mut bytes = [0; BYTES];
    let read = media.read_at(OFFSET, &mut bytes).map_err(|e| e.to_string());
    if read.is_ok() && bytes.iter().all(|&byte| byte == 0) {
        return Ok(Found::Nothing);
    }
    let mark = read.and_then(|()| Mark::decode(&bytes).map_err(|e| e.to_string()));
    let found = match mark {
        Ok(mark) => match of_memory(media, memories, &mark)? {
            Found::Written(bytes) => {
                unmark(media)?;
                // In which nothing waits any more.
                let _ = memories.remove(mark.tag);
                return Ok(Found::Written(bytes));
            }
            found => found,
        },
        Err(why) => Found::Lost(format!("{}: {why}", media.name())),
    };
    // Told once. A mark that stayed would have an old memory written over what comes now.
    unmark(media)?;
    Ok(found)
}

/// What became of the memory that a mark names.
fn of_memory(media: &dyn Media, memories: &dyn SharedMemories, mark: &Mark) -> io::Result<Found> {
    match memories.open(Owner { tag: mark.tag, media: media.identity() }) {
        Ok(Some(memory)) => match write_back(media, &*memory) {
            // Who opens them says so as well.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                Ok(Found::Lost(format!("{}: {e}", media.name())))
            }
            other => other.map(Found::Written),
        },
        Ok(None) if mark.boot != memories.boot() => Ok(Found::Restarted),
        Ok(None) => Ok(Found::Lost("its memory is not there any more".to_owned())),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(Found::Lost(e.to_string())),
        Err(e) => Err(e),
    }
}

/// Writes what the media may lack, and syncs them.
fn write_back(media: &dyn Media, memory: &dyn SharedMemory) -> io::Result<u64> {
    let grain = GRAIN_BYTES as usize;
    let mut written = 0;
    for slot in 0..memory.slots() {
        let words = memory.words(slot);
        for (first, end) in runs(&lacking(words)) {
            let mut bytes = vec![0; (end - first) * grain];
            memory.read(slot, first * grain, &mut bytes)?;
            let at = piece_of(words) * PIECE_BYTES + (first * grain) as u64;
            media.write_at(at, &[IoSlice::new(&bytes)])?;
            written += bytes.len() as u64;
        }
    }
    media.sync()?;
    for slot in 0..memory.slots() {
        let words = memory.words(slot);
        forget_dirty(words, 0, (PIECE_BYTES / GRAIN_BYTES) as usize);
        end_writing(words);
    }
    Ok(written)
}

/// Makes a memory, and marks the media; nothing if they have no label.
pub(super) fn begin(media: &dyn Media, shared: &Shared) -> Result<Option<Memory>, String> {
    if !has_label(media) {
        return Ok(None);
    }
    let owner = Owner { tag: shared.draw(), media: media.identity() };
    let made = shared.memories.create(owner, shared.slots_max());
    let slots = made.map_err(|e| e.to_string())?;
    let mark = Mark { tag: owner.tag, boot: shared.memories.boot() };
    // A power cut may take it, and takes the memory as well.
    match media.write_at(OFFSET, &[IoSlice::new(&mark.encode())]) {
        // They may have stopped to be a member's meanwhile, and are to be blank then.
        Ok(()) if !has_label(media) => {
            let _ = unmark(media);
            let _ = shared.memories.remove(mark.tag);
            Ok(None)
        }
        Ok(()) => Ok(Some(Memory { slots, mark })),
        Err(e) => {
            // Nothing is in it yet, whatever became of the mark.
            let _ = shared.memories.remove(mark.tag);
            Err(e.to_string())
        }
    }
}

/// Zeros where the mark is, as on media that never had one.
fn unmark(media: &dyn Media) -> io::Result<()> {
    media.write_durable(OFFSET, &[IoSlice::new(&[0; BYTES])])
}

/// The media have everything: unmarks them, and removes the memory.
pub(super) fn end(media: &dyn Media, memories: &dyn SharedMemories, mark: &Mark) {
    // Media that are no member any more are not written to. A mark that stays leads to a memory in
    // which nothing waits.
    if !has_label(media) || unmark(media).is_ok() {
        let _ = memories.remove(mark.tag);
    }
}
