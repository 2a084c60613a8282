//! The authentication of a login: the method, and CHAP step by step.
//!
//! ```text
//! Method -- AuthMethod=CHAP --> Algorithm -- CHAP_A --> Challenged -- CHAP_N, CHAP_R --> Over
//! Method -- AuthMethod=None, or nothing is said --> Over     (where nothing has to be proved)
//! ```
//! Invariants
//! 1. The target proves itself only after the initiator has, and never answers its own challenge.
//! 2. Nothing that is refused tells whether it was the name or the secret.

use std::sync::Arc;

use env::{Entropy, RealEntropy};
use md5::{Digest, Md5};
use volume::{Credential, Secret, Token};
use wire::iscsi::chap::{self, Algorithm, Answer, Challenge};
use wire::iscsi::negotiation::first_common;
use wire::iscsi::text::{self, Pair};

/// Digests in the order of our liking, if the initiator leaves the choice to us; it does not.
const ALGORITHMS: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Md5];
/// Bytes of our challenges: as many as the longest digest.
const CHALLENGE_BYTES: usize = 32;

/// A credential that a login may prove, and that which it is proved then.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    pub(super) initiator: Credential,
    pub(super) target: Option<Credential>,
}

/// The authentication of one login.
#[derive(Debug)]
pub(super) struct Authentication {
    /// One of these is to be proved, or a token.
    wanted: Vec<Proof>,
    has_tokens: bool,
    /// By this a target proves itself to who proves a token.
    own: Option<Credential>,
    need: Need,
    step: Step,
}

/// Whether a login has to prove that it knows a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It has to.
    Proof,
    /// It need not; but a secret that it offers has to be right.
    Nothing,
    /// The same, but a name that nobody has here is let in as one that offers nothing.
    NotEvenAName,
}

/// The token of a name, and whether it may be proved here and now.
pub(super) type FindToken<'f> = dyn Fn(&str) -> Option<(Arc<Token>, bool)> + 'f;

/// The things that were proved.
#[derive(Debug, Default)]
struct Proved {
    credentials: Vec<Credential>,
    token: Option<Arc<Token>>,
}

#[derive(Debug)]
enum Step {
    Method,
    Algorithm,
    Challenged(Algorithm, Challenge),
    Over(Proved),
}

/// Why a login is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It proves nothing.
    Unproved(&'static str),
    /// It breaks the protocol.
    Nonsense(&'static str),
}

const NO_PROOF: Refused = Refused::Unproved("the target wants CHAP");
const WRONG: Refused = Refused::Unproved("CHAP: the name or the secret is wrong");

impl Authentication {
    /// Of a login that may prove one of these, or a token if there are any: to that a target proves
    /// itself by `own`.
    pub(super) fn new(
        wanted: Vec<Proof>,
        (has_tokens, own): (bool, Option<Credential>),
        need: Need,
    ) -> Authentication {
        Authentication { wanted, has_tokens, own, need, step: Step::Method }
    }

    /// Whether there is anything that could be proved.
    fn has_proofs(&self) -> bool {
        !self.wanted.is_empty() || self.has_tokens
    }

    /// Whether the login may leave security behind.
    pub(super) fn may_go_on(&self) -> bool {
        match self.step {
            Step::Method => self.need != Need::Proof,
            Step::Algorithm | Step::Challenged(..) => false,
            Step::Over(_) => true,
        }
    }

    /// Whether the initiator has begun to prove something.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.step, Step::Algorithm | Step::Challenged(..))
    }

    /// The login has left security behind; fails if it proves too little.
    pub(super) fn check(&self) -> Result<(), Refused> {
        if self.may_go_on() { Ok(()) } else { Err(NO_PROOF) }
    }

    /// Whether it was proved that the initiator has this.
    pub(super) fn has_proved(&self, credential: &Credential) -> bool {
        matches!(&self.step, Step::Over(proved) if proved.credentials.contains(credential))
    }

    /// The token that was proved.
    pub(super) fn token(&self) -> Option<&Arc<Token>> {
        match &self.step {
            Step::Over(proved) => proved.token.as_ref(),
            _ => None,
        }
    }

    /// Takes up the keys of security in a text; `named` finds the token of a name.
    pub(super) fn take(
        &mut self,
        pairs: &[Pair<'_>],
        named: &FindToken<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let nonsense = |error: chap::ChapError| Refused::Nonsense(error.0);
        let method = text::value(pairs, "AuthMethod");
        if method.is_some() != matches!(self.step, Step::Method) {
            return Err(Refused::Nonsense("AuthMethod is said once, before all else"));
        }
        self.step = match &self.step {
            Step::Method => self.choose_method(method.unwrap_or_default(), out)?,
            Step::Algorithm => {
                let algorithm = match chap::choose(pairs, &ALGORITHMS) {
                    Ok(algorithm) => algorithm,
                    Err(_) => return Err(Refused::Unproved("CHAP: no algorithm in common")),
                };
                let challenge = challenge();
                chap::put_challenge(algorithm, &challenge, out);
                Step::Challenged(algorithm, challenge)
            }
            Step::Challenged(algorithm, challenge) => {
                let answer = chap::answer(pairs).map_err(nonsense)?;
                Step::Over(self.judge((*algorithm, challenge), &answer, named(answer.name), out)?)
            }
            Step::Over(_) => return Err(Refused::Nonsense("security was over")),
        };
        Ok(())
    }

    fn choose_method(&self, offered: &str, out: &mut Vec<u8>) -> Result<Step, Refused> {
        let ours: &[&str] = match (self.has_proofs(), self.need) {
            (false, _) => &["None"],
            (true, Need::Proof) => &["CHAP"],
            (true, _) => &["CHAP", "None"],
        };
        let Some(method) = first_common(offered, ours) else {
            return Err(match self.has_proofs() {
                true => NO_PROOF,
                false => {
                    Refused::Unproved("AuthMethod has to allow None: nothing is asked for here")
                }
            });
        };
        text::put("AuthMethod", method, out);
        Ok(if method == "CHAP" { Step::Algorithm } else { Step::Over(Proved::default()) })
    }

    /// The proofs that an answer gives; `token` has the name that the answer says.
    fn judge(
        &self,
        (algorithm, challenge): (Algorithm, &Challenge),
        answer: &Answer<'_>,
        token: Option<(Arc<Token>, bool)>,
        out: &mut Vec<u8>,
    ) -> Result<Proved, Refused> {
        let shows = |secret: &Secret| {
            is_same(&digest(algorithm, challenge, secret.bytes()), &answer.response)
        };
        let is_named = |proof: &&Proof| proof.initiator.user == answer.name;
        let named: Vec<&Proof> = self.wanted.iter().filter(is_named).collect();
        let is_nobody = named.is_empty() && token.is_none();
        let is_shown = |proof: &&Proof| shows(&proof.initiator.secret);
        let proved: Vec<&Proof> = named.into_iter().filter(is_shown).collect();
        let shown = |(token, may): (Arc<Token>, bool)| {
            (may && token.spec.chap.as_ref().is_some_and(shows)).then_some(token)
        };
        let token = token.and_then(shown);
        let lets_in_anybody = is_nobody && self.need == Need::NotEvenAName;
        if proved.is_empty() && token.is_none() && !lets_in_anybody {
            return Err(WRONG);
        }
        if let Some(theirs) = &answer.challenge {
            if theirs.bytes == challenge.bytes {
                return Err(Refused::Unproved("CHAP: our own challenge came back"));
            }
            let of_token = token.as_ref().and(self.own.as_ref());
            let own = proved.iter().find_map(|proof| proof.target.as_ref()).or(of_token);
            let Some(own) = own else {
                return Err(Refused::Unproved("CHAP: the target has no secret to prove itself by"));
            };
            let response = digest(algorithm, theirs, own.secret.bytes());
            chap::put_response(&own.user, &response, out);
        }
        let credentials = proved.into_iter().map(|proof| proof.initiator.clone()).collect();
        Ok(Proved { credentials, token })
    }
}

fn challenge() -> Challenge {
    let entropy = RealEntropy::default();
    let words = (0..CHALLENGE_BYTES / 8).flat_map(|_| entropy.next_u64().to_be_bytes());
    Challenge { identifier: entropy.next_u64() as u8, bytes: words.collect() }
}

/// The response to a challenge (RFC 1994).
pub(super) fn digest(algorithm: Algorithm, challenge: &Challenge, secret: &[u8]) -> Vec<u8> {
    let parts = [&[challenge.identifier][..], secret, &challenge.bytes];
    match algorithm {
        Algorithm::Sha256 => {
            ring::digest::digest(&ring::digest::SHA256, &parts.concat()).as_ref().to_vec()
        }
        _ => Md5::digest(parts.concat()).to_vec(),
    }
}

/// Compares in a time that says nothing of where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use volume::{Credential, Secret};
    use wire::iscsi::chap::{self, Algorithm, Challenge};
    use wire::iscsi::text::{self, Pair};

    use super::{Authentication, NO_PROOF, Need, Proof, Refused, WRONG, digest};

    const SECRET: &str = "a secret of ours";
    const OTHER: &str = "that of a target";

    fn credential(user: &str, secret: &str) -> Credential {
        let secret = Secret::new(secret.replace(' ', "-")).expect("it fits");
        Credential { user: user.to_owned(), secret }
    }

    fn wanted() -> Vec<Proof> {
        let target = Some(credential("store", OTHER));
        vec![Proof { initiator: credential("me", SECRET), target }]
    }

    /// Has a text taken up; what is answered.
    fn say(
        authentication: &mut Authentication,
        said: &[(&str, &str)],
    ) -> Result<Vec<(String, String)>, Refused> {
        let pairs: Vec<Pair<'_>> = said.iter().map(|&(key, value)| Pair { key, value }).collect();
        let mut out = Vec::new();
        authentication.take(&pairs, &|_| None, &mut out)?;
        let pairs = text::parse(&out).expect("a text");
        Ok(pairs.iter().map(|pair| (pair.key.to_owned(), pair.value.to_owned())).collect())
    }

    /// The challenge after a choice of algorithms.
    fn challenged(list: &str) -> (Authentication, Algorithm, Challenge) {
        let mut authentication = Authentication::new(wanted(), (false, None), Need::Proof);
        assert!(!authentication.may_go_on());
        let chosen = say(&mut authentication, &[("AuthMethod", "None,CHAP")]).expect("chosen");
        assert_eq!(chosen, [("AuthMethod".to_owned(), "CHAP".to_owned())]);
        let told = say(&mut authentication, &[("CHAP_A", list)]).expect("challenged");
        let pairs: Vec<Pair<'_>> = told.iter().map(|(key, value)| Pair { key, value }).collect();
        let algorithm = chap::choose(&pairs, &super::ALGORITHMS).expect("one");
        let challenge = chap::challenge(&pairs).expect("read").expect("there");
        assert!(challenge.bytes.len() >= 16 && !authentication.may_go_on());
        (authentication, algorithm, challenge)
    }

    fn response(algorithm: Algorithm, challenge: &Challenge, secret: &str) -> String {
        let secret = secret.replace(' ', "-");
        text::hexadecimal_text(&digest(algorithm, challenge, secret.as_bytes()))
    }

    #[test]
    fn digests_are_those_of_the_standards() {
        let challenge = Challenge { identifier: b'a', bytes: b"c".to_vec() };
        let hex = |algorithm| text::hexadecimal_text(&digest(algorithm, &challenge, b"b"));
        assert_eq!(hex(Algorithm::Md5), "0x900150983cd24fb0d6963f7d28e17f72");
        let sha = "0xba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(Algorithm::Sha256), sha);
    }

    #[test]
    fn who_has_the_secret_is_let_in_and_nobody_else_is() {
        for (list, expected) in [("7,5", Algorithm::Sha256), ("9,5,7", Algorithm::Md5)] {
            let (mut authentication, algorithm, challenge) = challenged(list);
            assert_eq!(algorithm, expected);
            let response = response(algorithm, &challenge, SECRET);
            let answer = [("CHAP_N", "me"), ("CHAP_R", &*response)];
            assert_eq!(say(&mut authentication, &answer), Ok(Vec::new()));
            assert!(authentication.has_proved(&credential("me", SECRET)));
            assert!(!authentication.has_proved(&credential("you", SECRET)));
            authentication.check().expect("proved");
            assert!(matches!(say(&mut authentication, &answer), Err(Refused::Nonsense(_))));
        }
        for (name, secret) in [("you", SECRET), ("me", OTHER), ("", SECRET)] {
            let (mut authentication, algorithm, challenge) = challenged("5");
            let response = response(algorithm, &challenge, secret);
            let answer = [("CHAP_N", name), ("CHAP_R", &*response)];
            assert_eq!(say(&mut authentication, &answer), Err(WRONG));
            assert_eq!(authentication.check(), Err(NO_PROOF));
        }
        for response in ["0x00", "0x", "900150983cd24fb0d6963f7d28e17f72", "0b!!"] {
            let (mut authentication, ..) = challenged("5");
            let answer = [("CHAP_N", "me"), ("CHAP_R", response)];
            say(&mut authentication, &answer).expect_err("no response");
        }
    }

    #[test]
    fn a_target_proves_itself_to_who_did_and_never_answers_its_own_challenge() {
        let theirs = Challenge { identifier: 9, bytes: b"their challenge.".to_vec() };
        let text_of = |challenge: &Challenge| text::hexadecimal_text(&challenge.bytes);
        let answer = |secret: &str, theirs: &Challenge| {
            let (mut authentication, algorithm, challenge) = challenged("7");
            let response = response(algorithm, &challenge, secret);
            let own = Challenge { identifier: theirs.identifier, ..challenge };
            let bytes = if theirs.bytes.is_empty() { text_of(&own) } else { text_of(theirs) };
            let said =
                [("CHAP_N", "me"), ("CHAP_R", &*response), ("CHAP_I", "9"), ("CHAP_C", &bytes)];
            say(&mut authentication, &said)
        };
        let proof = response(Algorithm::Sha256, &theirs, OTHER);
        let expected = [("CHAP_N", "store"), ("CHAP_R", &*proof)];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(answer(SECRET, &theirs).expect("both"), expected);
        assert_eq!(answer(OTHER, &theirs), Err(WRONG));
        let mirror = Challenge { identifier: 9, bytes: Vec::new() };
        assert!(
            matches!(answer(SECRET, &mirror), Err(Refused::Unproved(why)) if why.contains("own"))
        );
    }

    #[test]
    fn a_login_without_a_proof_is_one_where_nothing_is_asked_for() {
        let mut open = Authentication::new(Vec::new(), (false, None), Need::NotEvenAName);
        open.check().expect("nothing is asked for");
        say(&mut open, &[("AuthMethod", "CHAP")]).expect_err("there is nothing to prove");
        say(&mut open, &[("AuthMethod", "CHAP,None")]).expect("none");
        open.check().expect("nothing is asked for");
        let mut closed = Authentication::new(wanted(), (false, None), Need::Proof);
        assert_eq!(closed.check(), Err(NO_PROOF));
        assert_eq!(say(&mut closed, &[("AuthMethod", "None")]), Err(NO_PROOF));
        for jump in [[("CHAP_A", "5")], [("CHAP_N", "me")]] {
            say(&mut closed, &jump).expect_err("a step is left out");
        }
        let mut discovery = Authentication::new(wanted(), (false, None), Need::Nothing);
        discovery.check().expect("it may");
        say(&mut discovery, &[("AuthMethod", "CHAP,None")]).expect("chosen");
        assert_eq!(discovery.check(), Err(NO_PROOF), "it began to prove something");
    }
}
