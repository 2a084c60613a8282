//! Tokens: callers with a name, a role and patterns of the volumes that they see. The engine keeps
//! them with the pool; of secrets it knows those for CHAP alone, and front ends go by what is kept
//! here.
//!
//! Invariants
//! 1. Tokens in memory change under the pool's books, after the catalogue does: one that is found
//!    is durable, one that was revoked is not found.
//! 2. No name and no id is two tokens'.
//! 3. A record that cannot be read lets nobody in; nothing else depends on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::caller::caller;
use crate::catalogue::tables;
use crate::names::check_name;
use crate::pool::token_book::{Token, TokenSpec, Tokens};
use crate::pool::volumes::Volumes;
use crate::{Error, Result};

/// Tokens of a pool.
pub const TOKENS_MAX: usize = 10_000;
/// Patterns of a token.
pub const TOKEN_PATTERNS_MAX: usize = 64;

fn no_token(name: &str) -> Error {
    Error::not_found(format!("there is no token {name}"))
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
        let invalid = |text: String| Err(Error::invalid(text));
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
            return Err(Error::exists(text).with_hint("revoke it first, or take another name"));
        }
        let (used_day, is_revoked) = (AtomicU64::new(0), AtomicBool::new(false));
        let token = Token { spec, created, made_by: caller(), used_day, is_revoked };
        let token = Arc::new(token);
        let spec = &token.spec;
        tx.put(tables::TOKENS, &*spec.name, &token.record())?;
        let words: Vec<String> = spec.volumes.iter().map(ToString::to_string).collect();
        let seen = if words.is_empty() { "all".to_owned() } else { words.join(" ") };
        let until = spec.expires.map_or_else(String::new, |until| format!(", until {until}"));
        let chap = if spec.chap.is_some() { ", logs in by CHAP" } else { "" };
        let (name, id, role) = (&spec.name, &spec.id, spec.role);
        let detail = format!("token {name} ({id}): {role}, volumes {seen}{until}{chap}");
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
