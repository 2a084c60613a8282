//! Bytes to requests.

use super::limits::REQUEST_BYTES;
use super::types::{Operation, Request, Whence};

/// Bytes that are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Garbage {
    /// They are shorter than a header, or not as long as it says.
    #[error("a request of {0} bytes has another length in its header")]
    Length(usize),
    /// The part of an operation is shorter than it must be; its answer would be an error.
    #[error("request {unique}, operation {opcode}, is cut off")]
    Short {
        /// Which request.
        unique: u64,
        /// Which operation.
        opcode: u32,
    },
}

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A name up to its zero, which must be there.
    fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let (name, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Some(name)
    }
}

/// Reads a request.
///
/// # Errors
/// The bytes are none.
pub fn request(bytes: &[u8]) -> Result<Request<'_>, Garbage> {
    let wrong = Garbage::Length(bytes.len());
    let mut rest = Rest(bytes);
    let length = rest.u32().ok_or(wrong)?;
    if bytes.len() < REQUEST_BYTES || length as usize != bytes.len() {
        return Err(wrong);
    }
    let opcode = rest.u32().ok_or(wrong)?;
    let unique = rest.u64().ok_or(wrong)?;
    let node = rest.u64().ok_or(wrong)?;
    let uid = rest.u32().ok_or(wrong)?;
    let mut rest = Rest(&bytes[REQUEST_BYTES..]);
    let short = Garbage::Short { unique, opcode };
    let operation = operation(opcode, &mut rest).ok_or(short)?;
    Ok(Request { unique, node, uid, operation })
}

fn operation<'a>(opcode: u32, rest: &mut Rest<'a>) -> Option<Operation<'a>> {
    Some(match opcode {
        1 => Operation::LookUp { name: rest.name()? },
        3 => Operation::Attributes,
        5 => Operation::Link,
        15 => {
            let _handle = rest.u64()?;
            Operation::Read { offset: rest.u64()?, length: rest.u32()? }
        }
        16 => write(rest)?,
        17 => Operation::Space,
        20 => Operation::Sync,
        22 => {
            let (room, _padding) = (rest.u32()?, rest.u32()?);
            Operation::Extended { name: rest.name()?, room }
        }
        23 => Operation::ExtendedNames { room: rest.u32()? },
        26 => Operation::Init {
            major: rest.u32()?,
            minor: rest.u32()?,
            readahead_bytes: rest.u32()?,
            flags: rest.u32()?,
        },
        28 | 44 => {
            let _handle = rest.u64()?;
            Operation::Entries { after: rest.u64()?, room: rest.u32()?, is_plus: opcode == 44 }
        }
        38 => Operation::Destroy,
        46 => {
            let _handle = rest.u64()?;
            let (offset, whence) = (rest.u64()?, rest.u32()?);
            match whence {
                SEEK_DATA => Operation::Seek { offset, whence: Whence::Data },
                SEEK_HOLE => Operation::Seek { offset, whence: Whence::Hole },
                _ => Operation::Other(opcode),
            }
        }
        // FORGET, INTERRUPT, BATCH_FORGET.
        2 | 36 | 42 => Operation::Unanswered,
        // SETATTR to LINK, SETXATTR, REMOVEXATTR, CREATE, TMPFILE.
        4 | 6..=13 | 21 | 24 | 35 | 51 => Operation::Change,
        other => Operation::Other(other),
    })
}

fn write<'a>(rest: &mut Rest<'a>) -> Option<Operation<'a>> {
    let _handle = rest.u64()?;
    let (offset, length) = (rest.u64()?, rest.u32()?);
    // Flags, the owner of locks, flags again, padding.
    rest.array::<20>()?;
    Some(Operation::Write { offset, data: rest.0.get(..length as usize)? })
}

#[cfg(test)]
mod tests {
    use super::{Garbage, Operation, Request, Whence, request};

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = (40 + body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(opcode.to_le_bytes());
        bytes.extend(7_u64.to_le_bytes());
        bytes.extend(9_u64.to_le_bytes());
        bytes.extend(1000_u32.to_le_bytes());
        bytes.extend([0; 12]);
        bytes.extend(body);
        bytes
    }

    fn read(opcode: u32, body: &[u8]) -> Result<Operation<'_>, Garbage> {
        let bytes = message(opcode, body).leak();
        request(bytes).map(|Request { unique, node, uid, operation }| {
            assert_eq!((unique, node, uid), (7, 9, 1000));
            operation
        })
    }

    #[test]
    fn requests_are_read_as_the_kernel_writes_them() {
        let read_in = [&[0; 8][..], &5_u64.to_le_bytes(), &6_u32.to_le_bytes(), &[0; 20]].concat();
        assert_eq!(read(15, &read_in), Ok(Operation::Read { offset: 5, length: 6 }));
        let entries = Operation::Entries { after: 5, room: 6, is_plus: true };
        assert_eq!(read(44, &read_in), Ok(entries));
        assert_eq!(read(1, b"a\xFFb\0"), Ok(Operation::LookUp { name: b"a\xFFb" }));
        let write_in = [&read_in[..16], &3_u32.to_le_bytes(), &[0; 20], b"abc"].concat();
        assert_eq!(read(16, &write_in), Ok(Operation::Write { offset: 5, data: b"abc" }));
        let extended = [&4_u32.to_le_bytes()[..], &[0; 4], b"user.x\0"].concat();
        assert_eq!(read(22, &extended), Ok(Operation::Extended { name: b"user.x", room: 4 }));
        let seek = [&read_in[..16], &4_u32.to_le_bytes(), &[0; 4]].concat();
        assert_eq!(read(46, &seek), Ok(Operation::Seek { offset: 5, whence: Whence::Hole }));
        assert_eq!(read(9, b"x\0"), Ok(Operation::Change));
        assert_eq!(read(2, &[0; 8]), Ok(Operation::Unanswered));
        assert_eq!(read(4000, b""), Ok(Operation::Other(4000)));
    }

    #[test]
    fn what_is_cut_off_is_no_request() {
        let full = [&[0; 16][..], &3_u32.to_le_bytes(), &[0; 20], b"abc"].concat();
        for opcode in 0..60 {
            for length in 0..full.len() {
                // There is an answer to all of them, and none reaches beyond the bytes.
                let _ = read(opcode, &full[..length]);
            }
        }
        assert_eq!(read(16, &full[..42]), Err(Garbage::Short { unique: 7, opcode: 16 }));
        assert_eq!(read(1, b"no end"), Err(Garbage::Short { unique: 7, opcode: 1 }));
        let mut longer = message(3, b"");
        longer.push(0);
        assert_eq!(request(&longer), Err(Garbage::Length(41)));
        for length in 0..40 {
            assert_eq!(request(&message(3, b"")[..length]), Err(Garbage::Length(length)));
        }
    }
}
