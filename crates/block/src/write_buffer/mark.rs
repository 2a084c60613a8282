//! The mark on the media: what is done at an opening with a memory that it names, and what is
//! written when one comes into use and goes out of it.

use std::io::{self, IoSlice};

use env::{GRAIN_BYTES, Media, Owner, SharedMemories, SharedMemory, WINDOW_BYTES};
use format::label::{AREA_BYTES, array_of};
use format::write_buffer::{BYTES, Mark, OFFSET, PLACE_BYTES_MAX};

use super::Memory;
use super::common::Common;
use super::words::{end_writing, forget_dirty, lacking, runs, window_of};

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

/// Whether media begin with a label, in whose area a mark can be.
fn has_label(media: &dyn Media) -> io::Result<bool> {
    if media.len_bytes() < AREA_BYTES {
        return Ok(false);
    }
    let mut head = [0; BYTES];
    media.read_at(0, &mut head)?;
    Ok(array_of(&head).is_some())
}

/// Writes what a process that died left to its media.
pub(super) fn recover(media: &dyn Media, memories: &dyn SharedMemories) -> io::Result<Found> {
    let mut bytes = [0; BYTES];
    // Media that cannot be read say so to who opens them.
    if !has_label(media).unwrap_or(false) || media.read_at(OFFSET, &mut bytes).is_err() {
        return Ok(Found::Nothing);
    }
    let mark = match Mark::decode(&bytes) {
        Ok(mark) => mark,
        Err(_) if bytes.iter().all(|&byte| byte == 0) => return Ok(Found::Nothing),
        Err(error) => return Ok(Found::Lost(format!("{}: {error}", media.name()))),
    };
    if !mark.in_use {
        return Ok(Found::Nothing);
    }
    let found = match memories.open(&mark.place) {
        Err(e) if e.kind() != io::ErrorKind::InvalidData => return Err(e),
        Err(e) => Found::Lost(format!("{}: {e}", mark.place)),
        Ok(None) if mark.boot != memories.boot() => Found::Restarted,
        Ok(None) => Found::Lost(format!("{} is not there any more", mark.place)),
        Ok(Some(memory)) if is_of(memory.owner(), &mark, media) => {
            Found::Written(write_back(media, &*memory)?)
        }
        Ok(Some(_)) => {
            let text = "is for another file: this one is a copy, or was put back";
            Found::Lost(format!("{} {text}", mark.place))
        }
    };
    match found {
        Found::Written(_) => end(media, memories, &mark),
        // Told once.
        _ => drop(media.write_durable(OFFSET, &[IoSlice::new(&ended(&mark))])),
    }
    Ok(found)
}

fn is_of(owner: Owner, mark: &Mark, media: &dyn Media) -> bool {
    owner.tag == mark.tag && owner.media == media.identity()
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
            let at = window_of(words) * WINDOW_BYTES + (first * grain) as u64;
            media.write_at(at, &[IoSlice::new(&bytes)])?;
            written += bytes.len() as u64;
        }
    }
    media.sync()?;
    for slot in 0..memory.slots() {
        let words = memory.words(slot);
        forget_dirty(words, 0, (WINDOW_BYTES / GRAIN_BYTES) as usize);
        end_writing(words);
    }
    Ok(written)
}

/// Makes a memory, and marks the media; nothing if they have no label.
pub(super) fn begin(media: &dyn Media, common: &Common) -> Result<Option<Memory>, String> {
    if !has_label(media).map_err(|e| e.to_string())? {
        return Ok(None);
    }
    let owner = Owner { tag: common.draw(), media: media.identity() };
    let place = common.memories.place(owner.tag)?;
    if place.len() > PLACE_BYTES_MAX {
        return Err(format!("{place} is too long a name"));
    }
    let made = common.memories.create(&place, owner, common.slots_max());
    let slots = made.map_err(|e| format!("{place}: {e}"))?;
    let mark = Mark { tag: owner.tag, boot: common.memories.boot(), in_use: true, place };
    // A power cut may take it, and takes the memory as well.
    match media.write_at(OFFSET, &[IoSlice::new(&mark.encode())]) {
        Ok(()) => Ok(Some(Memory { slots, mark })),
        Err(e) => {
            // Nothing is in it yet, whatever became of the mark.
            let _ = common.memories.remove(&mark.place);
            Err(e.to_string())
        }
    }
}

fn ended(mark: &Mark) -> [u8; BYTES] {
    Mark { in_use: false, ..mark.clone() }.encode()
}

/// Marks the media as having everything, and removes the memory.
pub(super) fn end(media: &dyn Media, memories: &dyn SharedMemories, mark: &Mark) {
    // A mark that stays leads to a memory in which nothing waits.
    if media.write_durable(OFFSET, &[IoSlice::new(&ended(mark))]).is_ok() {
        let _ = memories.remove(&mark.place);
    }
}
