//! Codes that let somebody in once: each stands for a token that is made when the code is used.
//!
//! A code stands in an address, and so in histories of browsers. There it is good for nothing: it
//! was used, or a minute has passed. Codes are in memory, and gone with the server.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use api::CreateCode;
use env::{Rank, RankedMutex};
use units::Span;

use super::{Caller, bearer};

/// How long a code is good.
pub(crate) const GOOD_FOR: Span = Span(60_000_000_000);
/// Codes that may wait. People who open pages do not come near it.
const COUNT_MAX: usize = 1000;

/// The codes that were not used yet, by the SHA-256 of their texts.
#[derive(Debug)]
pub(crate) struct Codes(RankedMutex<HashMap<[u8; 32], Code>>);

/// A code: the token that it stands for, and who wanted it.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) token: CreateCode,
    pub(crate) maker: Caller,
    until: Instant,
}

impl Codes {
    pub(crate) fn new() -> Codes {
        Codes(RankedMutex::new(Rank::Leaf, HashMap::new()))
    }

    /// Makes a code; none if too many wait, or the machine has no randomness.
    pub(crate) fn make(&self, token: CreateCode, maker: Caller, now: Instant) -> Option<String> {
        let text = bearer::make_code()?;
        let mut codes = self.0.lock();
        codes.retain(|_, code| now < code.until);
        let code = Code { token, maker, until: now + Duration::from_nanos(GOOD_FOR.0) };
        (codes.len() < COUNT_MAX).then(|| codes.insert(bearer::hash(&text), code))?;
        Some(text)
    }

    /// Takes a code, which nobody can use again. None if nobody made it, if it was used or is too
    /// old, and if its maker's own token was revoked since.
    pub(crate) fn take(&self, text: &str, now: Instant) -> Option<Code> {
        let hash = bearer::hash(text);
        let code = self.0.lock().remove(&hash)?;
        (now < code.until && !code.maker.is_revoked()).then_some(code)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use api::{CreateCode, RoleName};
    use units::Role;

    use super::{COUNT_MAX, Codes};
    use crate::who::{AccessConfig, Caller};

    #[test]
    fn a_code_is_good_once_and_for_a_minute_and_so_many_wait_at_most() {
        let (codes, start) = (Codes::new(), Instant::now());
        let maker = Caller::of_socket(Some(0), &AccessConfig::default());
        let make = |now| {
            let token = CreateCode { role: RoleName(Role::Viewer), volumes: vec![], expires: None };
            codes.make(token, maker.clone(), now)
        };
        let (used, late) = (make(start).expect("a code"), make(start).expect("a code"));
        assert!(codes.take("", start).is_none() && codes.take(&used[1..], start).is_none());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(codes.take(&used, at(59)).is_some(), "in time");
        assert!(codes.take(&used, at(59)).is_none(), "once");
        assert!(codes.take(&late, at(60)).is_none(), "too late");
        for _ in 0..COUNT_MAX {
            assert!(make(at(100)).is_some());
        }
        assert!(make(at(159)).is_none(), "all of them wait still");
        assert!(make(at(160)).is_some(), "none of them does");
    }
}
