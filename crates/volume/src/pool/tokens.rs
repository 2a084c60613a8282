//! Tokens: callers with a name, a role and patterns of the volumes that they see. The engine keeps
//! them with the pool; it never learns a secret, and front ends go by what is kept here.
//!
//! Invariants
//! 1. Tokens in memory change under the pool's books, after the catalogue does: one that is found
//!    is durable, one that was revoked is not found.
//! 2. No name and no id is two tokens'.
//! 3. A record that cannot be read lets nobody in; nothing else depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use units::{NamePattern, Role, WallTime};

use crate::caller::caller;
use crate::catalogue::{TokenRecord, tables};
use crate::names::check_name;
use crate::pool::volumes::Volumes;
use crate::{Error, ErrorKind, Result};

/// Tokens of a pool.
pub const TOKENS_MAX: usize = 10_000;
/// Patterns of a token.
pub const TOKEN_PATTERNS_MAX: usize = 64;
/// Nanoseconds of a day.
const DAY_NS: u64 = 86_400_000_000_000;

/// What a new token is to be.
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
}

/// A token as it stands.
#[derive(Debug)]
pub struct Token {
    /// Its name, its secret's hash, its rights.
    pub spec: TokenSpec,
    /// When it was made.
    pub created: WallTime,
    /// Who made it.
    pub made_by: Option<String>,
    /// The day of its last use, counted from 1970; 0 before the first.
    used_day: AtomicU64,
    is_revoked: AtomicBool,
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

    fn record(&self) -> TokenRecord {
        let spec = &self.spec;
        TokenRecord {
            id: spec.id.clone(),
            secret_sha256: spec.secret_sha256.iter().map(|byte| format!("{byte:02x}")).collect(),
            role: spec.role,
            volumes: spec.volumes.iter().map(ToString::to_string).collect(),
            created_ns: self.created.as_nanos(),
            made_by: self.made_by.clone(),
            expires_ns: spec.expires.map(WallTime::as_nanos),
            used_day: self.used_day.load(Ordering::Relaxed),
        }
    }

    /// The token of a record; none if it is none that was ever written.
    fn of(name: &str, record: TokenRecord) -> Option<Token> {
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
    by_name: BTreeMap<String, Arc<Token>>,
    by_id: BTreeMap<String, Arc<Token>>,
}

impl Tokens {
    fn insert(&mut self, token: Arc<Token>) {
        self.by_id.insert(token.spec.id.clone(), Arc::clone(&token));
        self.by_name.insert(token.spec.name.clone(), token);
    }
}

fn no_token(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no token {name}"))
        .with_hint("`hindsight token list` names them")
}

impl Volumes {
    /// All tokens by name.
    #[must_use]
    pub fn tokens(&self) -> Vec<Arc<Token>> {
        self.tokens.lock().by_name.values().cloned().collect()
    }

    /// A token.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn token(&self, name: &str) -> Result<Arc<Token>> {
        self.tokens.lock().by_name.get(name).cloned().ok_or_else(|| no_token(name))
    }

    /// The token with these letters.
    #[must_use]
    pub fn token_by_id(&self, id: &str) -> Option<Arc<Token>> {
        self.tokens.lock().by_id.get(id).cloned()
    }

    /// Takes up the tokens of the catalogue.
    pub(crate) fn load_tokens(&self) -> Result<()> {
        let mut all = Tokens::default();
        self.core.catalogue.each(tables::TOKENS, ""..="\u{7f}", |name, record| {
            if let Some(token) = record.ok().and_then(|record| Token::of(name, record)) {
                all.insert(Arc::new(token));
            }
            Ok(true)
        })?;
        *self.tokens.lock() = all;
        Ok(())
    }

    /// Makes a token.
    ///
    /// # Errors
    /// `Exists`, `Invalid`, `Refused`.
    pub fn create_token(&self, spec: TokenSpec) -> Result<Arc<Token>> {
        self.check_open()?;
        check_name("token", &spec.name)?;
        let invalid = |text: String| Err(Error::new(ErrorKind::Invalid, text));
        if spec.volumes.len() > TOKEN_PATTERNS_MAX {
            return invalid(format!("a token has at most {TOKEN_PATTERNS_MAX} patterns"));
        }
        let created = self.core.machine.clock.wall();
        if spec.expires.is_some_and(|expires| expires <= created) {
            return invalid(format!("a token that expires at {} never was good", created));
        }
        let mut tx = self.core.begin()?;
        let taken = {
            let tokens = self.tokens.lock();
            if tokens.by_name.len() >= TOKENS_MAX {
                return invalid(format!("there are {TOKENS_MAX} tokens already"));
            }
            tokens.by_name.contains_key(&spec.name) || tokens.by_id.contains_key(&spec.id)
        };
        if taken {
            let text = format!("there is a token {} already", spec.name);
            return Err(Error::new(ErrorKind::Exists, text)
                .with_hint("revoke it first, or take another name"));
        }
        let (used_day, is_revoked) = (AtomicU64::new(0), AtomicBool::new(false));
        let token = Token { spec, created, made_by: caller(), used_day, is_revoked };
        let token = Arc::new(token);
        let spec = &token.spec;
        tx.put(tables::TOKENS, &*spec.name, &token.record())?;
        let words: Vec<String> = spec.volumes.iter().map(ToString::to_string).collect();
        let seen = if words.is_empty() { "all".to_owned() } else { words.join(" ") };
        let until = spec.expires.map_or_else(String::new, |until| format!(", until {until}"));
        let detail =
            format!("token {} ({}): {}, volumes {seen}{until}", spec.name, spec.id, spec.role);
        tx.audit("token-create", "", detail)?;
        let _books = tx.commit()?;
        self.tokens.lock().insert(Arc::clone(&token));
        Ok(token)
    }

    /// Revokes a token: nobody is let in by it any more.
    ///
    /// # Errors
    /// `NotFound`, `Refused`.
    pub fn revoke_token(&self, name: &str) -> Result<()> {
        self.check_open()?;
        let mut tx = self.core.begin()?;
        let token = self.token(name)?;
        tx.remove(tables::TOKENS, name)?;
        tx.audit("token-revoke", "", format!("token {name} ({})", token.spec.id))?;
        let _books = tx.commit()?;
        token.is_revoked.store(true, Ordering::Release);
        let mut tokens = self.tokens.lock();
        tokens.by_name.remove(name);
        tokens.by_id.remove(&token.spec.id);
        Ok(())
    }

    /// Writes down when a token was used last, unless it was revoked meanwhile.
    ///
    /// # Errors
    /// `Refused`.
    pub fn record_token_use(&self, token: &Token) -> Result<()> {
        self.check_open()?;
        let tx = self.core.begin()?;
        if self.token_by_id(&token.spec.id).is_some() {
            tx.put(tables::TOKENS, &*token.spec.name, &token.record())?;
            tx.commit()?;
        }
        Ok(())
    }

    /// Adds a line of a front end to the audit log.
    ///
    /// # Errors
    /// `Refused`.
    pub fn note_access(&self, action: &str, detail: String) -> Result<()> {
        self.core.note(action, "", detail)
    }
}
