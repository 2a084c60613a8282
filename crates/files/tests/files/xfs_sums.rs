//! Checksums of XFS put right after an image was changed, so that readers go on to what is behind
//! them.

const SECTOR: usize = 512;

/// CRC32C, bit by bit: another one than that of the readers.
fn crc32c(parts: &[&[u8]]) -> u32 {
    static TABLE: std::sync::OnceLock<[u32; 256]> = std::sync::OnceLock::new();
    let table = TABLE.get_or_init(|| {
        std::array::from_fn(|byte| {
            (0..8).fold(byte as u32, |crc, _| crc >> 1 ^ (0x82F6_3B78 * (crc & 1)))
        })
    });
    let bytes = parts.iter().flat_map(|part| part.iter());
    !bytes.fold(u32::MAX, |crc, byte| crc >> 8 ^ table[usize::from(crc as u8 ^ byte)])
}

pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn mend_one(bytes: &mut [u8], at: usize) {
    let crc = crc32c(&[&bytes[..at], &[0; 4], &bytes[at + 4..]]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Where a block has its checksum, by the first words of it.
fn checksum_at(block: &[u8]) -> Option<usize> {
    match &block[..4] {
        b"XDB3" | b"XDD3" | b"XDF3" => return Some(4),
        b"XSLM" | b"XARM" => return Some(12),
        b"BMA3" => return Some(64),
        _ => {}
    }
    let kinds = [[0x3E, 0xBE], [0x3B, 0xEE], [0x3D, 0xF1], [0x3D, 0xFF]];
    kinds.iter().any(|kind| block[8..10] == *kind).then_some(12)
}

/// Puts the checksum of the superblock right.
pub fn mend(image: &mut [u8]) {
    mend_one(&mut image[..SECTOR], 224);
}

/// Puts the checksums of a block of 4 KiB right that is not of the log, with inodes of 512 bytes.
pub fn mend_block(block: &mut [u8]) {
    if block.starts_with(b"XFSB") {
        return mend(block);
    }
    if let Some(at) = checksum_at(block) {
        mend_one(block, at);
    }
    for inode in block.chunks_exact_mut(512).filter(|inode| inode.starts_with(b"IN")) {
        mend_one(inode, 100);
    }
}

/// Where the log is; it is in an allocation group of its own numbers.
pub fn log_of(image: &[u8]) -> std::ops::Range<usize> {
    let group_bits = u32::from(image[124]);
    let block = u64::from(be32(image, 48)) << 32 | u64::from(be32(image, 52));
    let group = (block >> group_bits) * u64::from(be32(image, 84));
    let start = (group + (block & ((1 << group_bits) - 1))) as usize * 4096;
    let end = start.saturating_add(be32(image, 96) as usize * 4096);
    if end <= image.len() { start..end } else { 0..0 }
}

/// Puts the checksum of a record of the log right.
pub fn mend_record(record: &mut [u8]) {
    let heads = (be32(record, 320) as usize).div_ceil(32 << 10).clamp(1, 8) * SECTOR;
    let length = be32(record, 12) as usize;
    let Some(whole) = record.get(..heads.saturating_add(length)) else { return };
    let mut parts = vec![&whole[..32], &[0; 4], &whole[36..328]];
    parts.extend(whole[SECTOR..heads].chunks_exact(SECTOR).map(|more| &more[..260]));
    parts.push(&whole[heads..]);
    let crc = crc32c(&parts);
    record[32..36].copy_from_slice(&crc.to_le_bytes());
}
