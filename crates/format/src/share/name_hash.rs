//! From a name to the first key that it may have in its directory: SipHash-2-4 (Aumasson and
//! Bernstein, 2012), keyed with a secret of the share, so that nobody chooses names that collide.

/// Bits of a key below the hash: a counter for names with the same hash.
pub const COUNTER_BITS: u32 = 8;
/// Keys that a hash has.
pub const KEYS_OF_A_HASH: u64 = 1 << COUNTER_BITS;
/// Bits of a hash: with the counter they are the 63 of a cookie of READDIR.
const HASH_BITS: u32 = 63 - COUNTER_BITS;

/// The first key of a name: a multiple of [`KEYS_OF_A_HASH`], not 0, below 2^63.
pub fn first_key(hash_key: u128, name: &[u8]) -> u64 {
    (sip_hash(hash_key, name) >> (64 - HASH_BITS)).max(1) << COUNTER_BITS
}

/// The hash itself.
pub fn sip_hash(key: u128, bytes: &[u8]) -> u64 {
    let [low, high] = [key as u64, (key >> 64) as u64];
    let mut v = [
        low ^ 0x736f_6d65_7073_6575,
        high ^ 0x646f_7261_6e64_6f6d,
        low ^ 0x6c79_6765_6e65_7261,
        high ^ 0x7465_6462_7974_6573,
    ];
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        compress(&mut v, u64::from_le_bytes(word.try_into().expect("a chunk of 8 bytes")));
    }
    let rest = words.remainder();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    compress(&mut v, u64::from_le_bytes(last));
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn compress(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    round(v);
    v[0] ^= word;
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::{first_key, sip_hash};

    #[test]
    fn the_hash_is_the_published_one() {
        let key = u128::from_le_bytes(std::array::from_fn(|i| i as u8));
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(sip_hash(key, &message), 0xa129_ca61_49be_45e5);
        assert_eq!(sip_hash(key, b""), 0x726f_db47_dd0e_0e31);
    }

    #[test]
    fn keys_have_63_bits_and_leave_room_for_dots_and_counters() {
        for name in [&b"a"[..], b"b", b"a rather long name of a file"] {
            let key = first_key(7, name);
            assert!((256..1 << 63).contains(&key) && key.is_multiple_of(256), "{key:#x}");
        }
    }
}
