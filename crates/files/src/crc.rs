//! Checksums as file systems go on with them: the register goes in and comes out as it is.

use crc_fast::{CrcAlgorithm, Digest};

fn go_on(algorithm: CrcAlgorithm, register: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(algorithm, u64::from(register));
    digest.update(bytes);
    // The digest inverts the register at its end.
    !(digest.finalize() as u32)
}

/// CRC32C.
pub fn crc32c(register: u32, bytes: &[u8]) -> u32 {
    go_on(CrcAlgorithm::Crc32Iscsi, register, bytes)
}

/// CRC32, of GPT.
pub fn crc32(bytes: &[u8]) -> u32 {
    !crc32_from(u32::MAX, bytes)
}

/// CRC32 from a register on.
pub fn crc32_from(register: u32, bytes: &[u8]) -> u32 {
    go_on(CrcAlgorithm::Crc32IsoHdlc, register, bytes)
}

/// CRC16 of ext4's group descriptors: the polynomial 0x8005, reflected.
pub fn crc16(register: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(register, |mut register, byte| {
        register ^= u16::from(*byte);
        for _ in 0..8 {
            let carry = register & 1;
            register = (register >> 1) ^ (0xA001 * carry);
        }
        register
    })
}

#[cfg(test)]
mod tests {
    use super::{crc16, crc32, crc32c};

    const CHECK: &[u8] = b"123456789";

    #[test]
    fn checksums_are_the_known_ones_whole_and_in_pieces() {
        assert_eq!(!crc32c(u32::MAX, CHECK), 0xE306_9283);
        assert_eq!(!crc32c(crc32c(u32::MAX, b"1234"), b"56789"), 0xE306_9283);
        assert_eq!(crc32c(7, b""), 7);
        assert_eq!(crc32(CHECK), 0xCBF4_3926);
        assert_eq!(crc16(0, CHECK), 0xBB3D);
    }
}
