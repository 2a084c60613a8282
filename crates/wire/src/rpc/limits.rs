//! The limits of RPC messages. A decoder refuses more before anything is taken.

/// Longest record, in bytes: a WRITE of 1 MiB, and room for its header. The marks of fragments
/// count, so that fragments without data have an end too.
pub const RECORD_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// Bytes of the mark before each fragment.
pub const MARK_BYTES: usize = 4;
/// Longest body of credentials or of a verifier, in bytes (section 8.2).
pub const AUTH_BYTES_MAX: usize = 400;
/// Longest name of a machine in `AUTH_SYS`, in bytes (appendix A).
pub const MACHINE_NAME_BYTES_MAX: usize = 255;
/// Most groups in `AUTH_SYS` beside the first (appendix A).
pub const GIDS_MAX: usize = 16;

const _: () = {
    assert!(RECORD_BYTES_MAX < 1 << 31, "a mark has 31 bits of length");
    assert!(20 + MACHINE_NAME_BYTES_MAX + 1 + 4 * GIDS_MAX <= AUTH_BYTES_MAX);
};
