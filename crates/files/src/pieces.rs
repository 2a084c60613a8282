//! Pieces of a file as a reader finds them, and reads of them.

use crate::error::{Error, Result};
use crate::tree::{PIECES_MAX, Piece};

/// Pieces as they are found, in order of the file.
#[derive(Default)]
pub struct Pieces {
    pub found: Vec<Piece>,
}

impl Pieces {
    /// Adds a piece, or makes the last one longer.
    pub fn add(&mut self, inode: u64, piece: Piece) -> Result<()> {
        if let Some(last) = self.found.last_mut() {
            let end = last.offset + last.length;
            if piece.offset < end {
                return Err(Error::damaged(format!("inode {inode} has blocks out of order")));
            }
            let goes_on = match (last.place, piece.place) {
                (Some(last_place), Some(place)) => last_place + last.length == place,
                (None, None) => true,
                _ => false,
            };
            if piece.offset == end && goes_on {
                last.length += piece.length;
                return Ok(());
            }
        }
        if self.found.len() == PIECES_MAX {
            return Err(Error::limit(format!("inode {inode} has more than {PIECES_MAX} pieces")));
        }
        self.found.push(piece);
        Ok(())
    }
}

/// Reads of pieces; holes and what was never written are zeros. `read` reads bytes of the disk.
pub fn read_pieces(
    pieces: &[Piece],
    offset: u64,
    bytes: &mut [u8],
    read: &dyn Fn(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    bytes.fill(0);
    let end = offset.saturating_add(bytes.len() as u64);
    let first = pieces.partition_point(|piece| piece.offset + piece.length <= offset);
    for piece in pieces[first..].iter().take_while(|piece| piece.offset < end) {
        let Some(place) = piece.place else { continue };
        let from = piece.offset.max(offset);
        let to = (piece.offset + piece.length).min(end);
        let target = &mut bytes[(from - offset) as usize..(to - offset) as usize];
        read(place + (from - piece.offset), target)?;
    }
    Ok(())
}
