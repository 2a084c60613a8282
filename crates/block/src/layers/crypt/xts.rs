//! AES-256 in XTS mode (IEEE 1619) over sectors of 512 bytes. A cell of 16 bytes is encrypted by
//! itself, from the number of its sector and its place in it, so that cells can be had alone.

use aes::Aes256;
use aes::cipher::consts::{U16, U32};
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use format::crypt::SECTOR_BYTES;

/// Bytes of a cell.
pub(super) const CELL: usize = 16;
const SECTOR_CELLS: usize = SECTOR_BYTES / CELL;

type Cell = Array<u8, U16>;

/// The cipher; its keys are wiped when it is dropped.
pub(super) struct Xts {
    data: Aes256,
    tweak: Aes256,
}

impl Xts {
    /// The cipher of a key: the first half is that of the data, the other that of the tweaks.
    pub(super) fn new(key: &[u8; 64]) -> Xts {
        let half = |at: usize| {
            let bytes: &Array<u8, U32> =
                key[at..at + 32].try_into().expect("half of the key is 32 bytes");
            Aes256::new(bytes)
        };
        Xts { data: half(0), tweak: half(32) }
    }

    /// Encrypts whole cells that stand at `offset` in the data.
    pub(super) fn encrypt(&self, offset: u64, bytes: &mut [u8]) {
        self.apply(offset, bytes, |cells| self.data.encrypt_blocks(cells));
    }

    /// Decrypts whole cells that stand at `offset` in the data.
    pub(super) fn decrypt(&self, offset: u64, bytes: &mut [u8]) {
        self.apply(offset, bytes, |cells| self.data.decrypt_blocks(cells));
    }

    fn apply(&self, offset: u64, bytes: &mut [u8], cipher: impl Fn(&mut [Cell])) {
        let (cells, rest) = Cell::slice_as_chunks_mut(bytes);
        assert!(rest.is_empty() && offset.is_multiple_of(CELL as u64), "whole cells");
        let mut number = offset / CELL as u64;
        let mut left = cells;
        while !left.is_empty() {
            let sector = number / SECTOR_CELLS as u64;
            let first = (number % SECTOR_CELLS as u64) as usize;
            let (now, after) = left.split_at_mut(left.len().min(SECTOR_CELLS - first));
            let tweaks = self.tweaks(sector);
            add(now, &tweaks[first..]);
            cipher(now);
            add(now, &tweaks[first..]);
            number += now.len() as u64;
            left = after;
        }
    }

    /// What is added to the cells of a sector: its encrypted number times x^j, in GF(2^128).
    fn tweaks(&self, sector: u64) -> [u128; SECTOR_CELLS] {
        let mut cell = Cell::from(u128::from(sector).to_le_bytes());
        self.tweak.encrypt_block(&mut cell);
        let mut tweak = u128::from_le_bytes(cell.into());
        [(); SECTOR_CELLS].map(|()| {
            let this = tweak;
            tweak = (tweak << 1) ^ ((tweak >> 127) * 0x87);
            this
        })
    }
}

fn add(cells: &mut [Cell], tweaks: &[u128]) {
    for (cell, tweak) in cells.iter_mut().zip(tweaks) {
        *cell = Cell::from((u128::from_le_bytes(cell.0) ^ tweak).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::Xts;

    fn from_hex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().map(|c| c.to_digit(16).expect("a digit")).collect();
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    }

    fn key() -> [u8; 64] {
        let first = "2718281828459045235360287471352662497757247093699959574966967627";
        let second = "3141592653589793238462643383279502884197169399375105820974944592";
        from_hex(&format!("{first}{second}")).try_into().expect("64 bytes")
    }

    /// The vectors of IEEE 1619-2007, annex B: their key, data unit sequence number and ciphertext.
    #[test]
    fn the_published_vectors_of_aes_256_are_met() {
        let vectors = [
            (
                0xff_u64,
                "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b\
                 5d31e276f8fe4a8d66b317f9ac683f44680a86ac35adfc3345befecb4bb188fd",
            ),
            (
                0xffff,
                "77a31251618a15e6b92d1d66dffe7b50b50bad552305ba0217a610688eff7e11\
                 e1d0225438e093242d6db274fde801d4cae06f2092c728b2478559df58e837c2",
            ),
            (
                0xff_ffff,
                "e387aaa58ba483afa7e8eb469778317ecf4cf573aa9d4eac23f2cdf914e4e200\
                 a8b490e42ee646802dc6ee2b471b278195d60918ececb44bf79966f83faba049",
            ),
        ];
        for (sector, expected) in vectors {
            let plain: Vec<u8> = (0..512).map(|i| i as u8).collect();
            let mut bytes = plain.clone();
            Xts::new(&key()).encrypt(sector * 512, &mut bytes);
            assert_eq!(bytes[..64], from_hex(expected), "sector {sector:#x}");
            Xts::new(&key()).decrypt(sector * 512, &mut bytes);
            assert_eq!(bytes, plain);
        }
    }

    #[test]
    fn cells_alone_are_those_of_the_whole() {
        let xts = Xts::new(&key());
        let plain: Vec<u8> = (0..2048).map(|i| (i / 7) as u8).collect();
        let mut whole = plain.clone();
        xts.encrypt(1024, &mut whole);
        for start in (0..2048_usize).step_by(16) {
            for end in [start + 16, (start + 700).next_multiple_of(16), 2048] {
                let end = end.min(2048);
                let mut part = plain[start..end].to_vec();
                xts.encrypt(1024 + start as u64, &mut part);
                assert!(part == whole[start..end], "{start} to {end}");
                xts.decrypt(1024 + start as u64, &mut part);
                assert!(part == plain[start..end]);
            }
        }
    }

    /// Prints how fast it is: see `docs/design/2026-11-22-crypt.md`.
    #[test]
    fn speed() {
        let xts = Xts::new(&key());
        let mut bytes = vec![7; 1 << 20];
        let rounds = if cfg!(debug_assertions) { 2 } else { 200 };
        let start = std::time::Instant::now();
        (0..rounds).for_each(|round| xts.encrypt(round << 20, &mut bytes));
        println!("{:.0} MiB/s", rounds as f64 / start.elapsed().as_secs_f64());
        (0..rounds).rev().for_each(|round| xts.decrypt(round << 20, &mut bytes));
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
