//! The places of the fields of a trace.

use format::field::{Field, tile};

pub(crate) const BYTES: usize = 32;
pub(crate) const MAGIC: Field = Field::new("magic", 0, 8);
pub(crate) const CRC: Field = Field::new("crc", 8, 4);
pub(crate) const VERSION: Field = Field::new("version", 12, 4);
pub(crate) const START: Field = Field::new("start", 16, 8);
pub(crate) const ZERO: Field = Field::new("zero", 24, 8);
/// In order.
pub const FIELDS: &[Field] = &[MAGIC, CRC, VERSION, START, ZERO];
const _: () = assert!(tile(FIELDS, BYTES));

pub(crate) const FRAME_BYTES: usize = 40;
pub(crate) const FRAME_MAGIC: Field = Field::new("magic", 0, 4);
pub(crate) const FRAME_CRC: Field = Field::new("crc", 4, 4);
pub(crate) const FRAME_KIND: Field = Field::new("kind", 8, 4);
pub(crate) const FRAME_PAYLOAD_BYTES: Field = Field::new("payload_bytes", 12, 4);
pub(crate) const FRAME_COUNT: Field = Field::new("count", 16, 4);
pub(crate) const FRAME_ZERO: Field = Field::new("zero", 20, 4);
pub(crate) const FRAME_BEFORE: Field = Field::new("before", 24, 8);
pub(crate) const FRAME_TIME: Field = Field::new("time", 32, 8);
/// In order.
pub const FRAME_FIELDS: &[Field] = &[
    FRAME_MAGIC,
    FRAME_CRC,
    FRAME_KIND,
    FRAME_PAYLOAD_BYTES,
    FRAME_COUNT,
    FRAME_ZERO,
    FRAME_BEFORE,
    FRAME_TIME,
];
const _: () = assert!(tile(FRAME_FIELDS, FRAME_BYTES));
