//! Tokens in memory: each with its record, found by name and by id.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use units::{NamePattern, Role, WallTime};

use crate::catalogue::TokenRecord;
use crate::types::Secret;

/// Nanoseconds of a day.
const DAY_NS: u64 = 86_400_000_000_000;

/// A new token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSpec {
    /// Its name.
    pub name: String,
    /// The letters by which it is found.
    pub id: String,
    /// SHA-256 of its secret.
    pub secret_sha256: [u8; 32],
    /// Its rights.
    pub role: Role,
    /// The names of volumes that it sees; none are all.
    pub volumes: Vec<NamePattern>,
    /// When it is no longer good.
    pub expires: Option<WallTime>,
    /// The secret by which it logs in over iSCSI (CHAP), under its name.
    pub chap: Option<Secret>,
}

/// A token as it stands.
#[derive(Debug)]
pub struct Token {
    /// Its name, its secret's hash, its rights.
    pub spec: TokenSpec,
    /// When it was made.
    pub created: WallTime,
    /// Its maker.
    pub made_by: Option<String>,
    /// The day of its last use, counted from 1970; 0 before the first.
    pub(super) used_day: AtomicU64,
    pub(super) is_revoked: AtomicBool,
}

impl Token {
    /// The day of its last use, as the time at which that began.
    #[must_use]
    pub fn used(&self) -> Option<WallTime> {
        let day = self.used_day.load(Ordering::Relaxed);
        (day > 0).then(|| WallTime::from_nanos(day.saturating_mul(DAY_NS)))
    }

    /// Whether it was revoked: who was let in by it before asks this.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Acquire)
    }

    /// Whether it is no longer good.
    #[must_use]
    pub fn is_expired(&self, now: WallTime) -> bool {
        self.spec.expires.is_some_and(|expires| expires <= now)
    }

    /// Takes note of a use; true if it is the first of its day, which is to be recorded.
    pub fn note_use(&self, now: WallTime) -> bool {
        let today = now.as_nanos() / DAY_NS;
        self.used_day.fetch_max(today, Ordering::Relaxed) < today
    }

    pub(super) fn record(&self) -> TokenRecord {
        let spec = &self.spec;
        TokenRecord {
            id: spec.id.clone(),
            secret_sha256: spec.secret_sha256.iter().map(|byte| format!("{byte:02x}")).collect(),
            role: spec.role,
            volumes: spec.volumes.iter().map(ToString::to_string).collect(),
            created_ns: self.created.as_nanos(),
            made_by: self.made_by.clone(),
            expires_ns: spec.expires.map(WallTime::as_nanos),
            chap: spec.chap.clone(),
            used_day: self.used_day.load(Ordering::Relaxed),
        }
    }

    /// The token of a record; none if it is none that was ever written.
    pub(super) fn of(name: &str, record: TokenRecord) -> Option<Token> {
        let hex = record.secret_sha256.as_bytes();
        let mut secret_sha256 = [0; 32];
        if hex.len() != 64 {
            return None;
        }
        for (byte, digits) in secret_sha256.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        let volumes = record.volumes.iter().map(|text| text.parse().ok());
        let spec = TokenSpec {
            name: name.to_owned(),
            id: record.id,
            secret_sha256,
            role: record.role,
            volumes: volumes.collect::<Option<_>>()?,
            expires: record.expires_ns.map(WallTime::from_nanos),
            chap: record.chap,
        };
        Some(Token {
            spec,
            created: WallTime::from_nanos(record.created_ns),
            made_by: record.made_by,
            used_day: AtomicU64::new(record.used_day),
            is_revoked: AtomicBool::new(false),
        })
    }
}

/// The tokens of a pool, by name and by id.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    pub(super) by_name: BTreeMap<String, Arc<Token>>,
    pub(super) by_id: BTreeMap<String, Arc<Token>>,
}

impl Tokens {
    pub(super) fn insert(&mut self, token: Arc<Token>) {
        self.by_id.insert(token.spec.id.clone(), Arc::clone(&token));
        self.by_name.insert(token.spec.name.clone(), token);
    }
}
