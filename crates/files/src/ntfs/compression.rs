//! The compression of NTFS (LZNT1): chunks of 4 KiB, each of flags, bytes as they are, and
//! references to what came before in the same chunk.

use crate::bytes::le16;
use crate::error::{Error, Result};

const CHUNK_BYTES: usize = 4096;
const IS_COMPRESSED: u16 = 0x8000;
const LENGTH: u16 = 0x0FFF;
/// The shortest reference, in bytes.
const SHORTEST: usize = 3;

fn damaged() -> Error {
    Error::damaged("NTFS: a compressed file contradicts itself")
}

/// Expands chunks to so many bytes; what no chunk says is zeros.
pub fn expand(mut packed: &[u8], size: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size);
    while packed.len() >= 2 && bytes.len() < size {
        let head = le16(packed, 0);
        if head == 0 {
            break;
        }
        let length = usize::from(head & LENGTH) + 1;
        let chunk = packed.get(2..2 + length).ok_or_else(damaged)?;
        let start = bytes.len();
        if head & IS_COMPRESSED == 0 {
            bytes.extend(chunk);
        } else {
            expand_chunk(chunk, start, &mut bytes)?;
        }
        if bytes.len() - start > CHUNK_BYTES {
            return Err(damaged());
        }
        // A chunk that is short is zeros to its end.
        bytes.resize((start + CHUNK_BYTES).min(size), 0);
        packed = &packed[2 + length..];
    }
    bytes.resize(size, 0);
    Ok(bytes)
}

/// Expands a chunk whose bytes begin at `start`.
fn expand_chunk(mut chunk: &[u8], start: usize, bytes: &mut Vec<u8>) -> Result<()> {
    while let Some((&flags, behind)) = chunk.split_first() {
        chunk = behind;
        for bit in 0..8 {
            if chunk.is_empty() {
                return Ok(());
            }
            if bytes.len() - start > CHUNK_BYTES {
                return Err(damaged());
            }
            if flags >> bit & 1 == 0 {
                bytes.push(chunk[0]);
                chunk = &chunk[1..];
                continue;
            }
            if chunk.len() < 2 || bytes.len() == start {
                return Err(damaged());
            }
            let token = usize::from(le16(chunk, 0));
            chunk = &chunk[2..];
            // The further on, the more bits say how far back, and the fewer how much.
            let before = bytes.len() - start;
            let shift = (before - 1).checked_ilog2().map_or(0, |log| log.saturating_sub(3));
            let back = (token >> (12 - shift)) + 1;
            let length = (token & (0xFFF >> shift)) + SHORTEST;
            if back > before {
                return Err(damaged());
            }
            for _ in 0..length {
                bytes.push(bytes[bytes.len() - back]);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::expand;

    /// A chunk of one compressed text: `#include <ntfs.h>\n#include <stdio.h>\n`.
    const TEXT: &[u8] = b"#include <ntfs.h>\n#include <stdio.h>\n";
    const PACKED: &[u8] = &[
        0x1E, 0xb0, 0x00, b'#', b'i', b'n', b'c', b'l', b'u', b'd', b'e', 0x00, b' ', b'<', b'n',
        b't', b'f', b's', b'.', b'h', 0x04, b'>', b'\n', 0x07, 0x88, b's', b't', b'd', b'i', b'o',
        0x01, 0x01, 0x48, 0, 0,
    ];

    #[test]
    fn references_reach_back_as_far_as_they_may() {
        let mut expected = TEXT.to_vec();
        expected.resize(8192, 0);
        let found = expand(PACKED, 8192);
        assert!(found.is_ok_and(|found| found == expected));
    }

    #[test]
    fn chunks_that_are_not_compressed_are_as_they_are() {
        let plain: Vec<u8> = (0..4096).map(|at| (at % 251) as u8).collect();
        let packed = [&[0xFF, 0x3F][..], &plain, &[0x03, 0xb0, 0x02, b'a', 0x20, 0x00], &[0, 0]];
        let found = expand(&packed.concat(), 8192).unwrap();
        assert!(
            found[..4096] == plain && found[4096..4132] == *b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        );
        assert!(found[4132..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn what_leads_before_the_beginning_is_damage() {
        for wrong in [
            &[0x02, 0xb0, 0x01, 0x00, 0x00][..],
            &[0x03, 0xb0, 0x02, b'a', 0x00, 0x10],
            &[0x10, 0xb0, 0],
            &[0x02, 0xb0, 0x02, b'a', 1],
        ] {
            assert!(expand(wrong, 8192).is_err(), "{wrong:?}");
        }
    }
}
