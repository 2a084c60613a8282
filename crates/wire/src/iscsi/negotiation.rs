//! Operational parameters: what each key means, and our answer to an initiator's offer.
//!
//! A target has no need to offer anything itself: an initiator that leaves a key out gets the
//! default. So a negotiation is a function of the pairs that arrive, in order, and of our wishes.
//! Keys of security, names and SendTargets are told apart and left to the caller.

use std::borrow::Cow;

use super::limits::{DATA_SEGMENT_FIELD_MAX, LOGIN_SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use super::text::{Pair, boolean, boolean_text, number, put};
use super::types::Digests;

/// The rule by which both sides' values become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The first of the initiator's list that is among these.
    List(&'static [&'static str]),
    /// Both have to want it.
    And,
    /// One has to want it.
    Or,
    /// The smaller number, of those that may be offered.
    Min(u64, u64),
    /// The larger number, of those that may be offered.
    Max(u64, u64),
    /// A number that one side declares.
    Number(u64, u64),
    /// A text that one side declares.
    Text,
    /// Security: the login's.
    Security,
    /// A question in the full feature phase.
    Question,
    /// Of an older standard, refused.
    Obsolete,
}

/// A key that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its rule.
    pub rule: Rule,
    /// It says nothing in a discovery session.
    pub normal_only: bool,
    /// It may stand in a Text Request too.
    pub full_feature: bool,
}

const fn key(name: &'static str, rule: Rule) -> Key {
    Key { name, rule, normal_only: false, full_feature: false }
}

const fn normal(name: &'static str, rule: Rule) -> Key {
    Key { normal_only: true, ..key(name, rule) }
}

const fn always(name: &'static str, rule: Rule) -> Key {
    Key { full_feature: true, ..key(name, rule) }
}

const DIGESTS: Rule = Rule::List(&["CRC32C", "None"]);
const BURST: Rule = Rule::Min(SEGMENT_BYTES_MIN as u64, DATA_SEGMENT_FIELD_MAX as u64);

/// All keys that are known.
pub const KEYS: [Key; 34] = [
    key("HeaderDigest", DIGESTS),
    key("DataDigest", DIGESTS),
    normal("MaxConnections", Rule::Min(1, 65535)),
    normal("InitialR2T", Rule::Or),
    normal("ImmediateData", Rule::And),
    always(
        "MaxRecvDataSegmentLength",
        Rule::Number(SEGMENT_BYTES_MIN as u64, DATA_SEGMENT_FIELD_MAX as u64),
    ),
    normal("MaxBurstLength", BURST),
    normal("FirstBurstLength", BURST),
    key("DefaultTime2Wait", Rule::Max(0, 3600)),
    key("DefaultTime2Retain", Rule::Min(0, 3600)),
    normal("MaxOutstandingR2T", Rule::Min(1, 65535)),
    normal("DataPDUInOrder", Rule::Or),
    normal("DataSequenceInOrder", Rule::Or),
    key("ErrorRecoveryLevel", Rule::Min(0, 2)),
    normal("iSCSIProtocolLevel", Rule::Min(0, 31)),
    normal("TaskReporting", Rule::List(&["RFC3720"])),
    key("SessionType", Rule::Text),
    key("InitiatorName", Rule::Text),
    always("InitiatorAlias", Rule::Text),
    key("TargetName", Rule::Text),
    always("TargetAlias", Rule::Text),
    always("TargetAddress", Rule::Text),
    key("TargetPortalGroupTag", Rule::Number(0, 65535)),
    always("SendTargets", Rule::Question),
    key("AuthMethod", Rule::Security),
    key("CHAP_A", Rule::Security),
    key("CHAP_I", Rule::Security),
    key("CHAP_C", Rule::Security),
    key("CHAP_N", Rule::Security),
    key("CHAP_R", Rule::Security),
    key("IFMarker", Rule::And),
    key("OFMarker", Rule::And),
    key("IFMarkInt", Rule::Obsolete),
    key("OFMarkInt", Rule::Obsolete),
];

/// The key of a name, and its place in [`KEYS`].
fn find(name: &str) -> Option<(usize, Key)> {
    KEYS.iter().copied().enumerate().find(|(_, key)| key.name == name)
}

/// Our side's values for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// MaxConnections.
    pub connections: u16,
    /// InitialR2T: no unsolicited Data-Out.
    pub initial_r2t: bool,
    /// ImmediateData: data within commands.
    pub immediate_data: bool,
    /// MaxBurstLength, in bytes.
    pub max_burst_bytes: u32,
    /// FirstBurstLength, in bytes.
    pub first_burst_bytes: u32,
    /// DefaultTime2Wait, in seconds.
    pub time_to_wait_s: u16,
    /// DefaultTime2Retain, in seconds.
    pub time_to_retain_s: u16,
    /// MaxOutstandingR2T.
    pub outstanding_r2t: u16,
}

impl Default for Wishes {
    fn default() -> Wishes {
        Wishes {
            connections: 1,
            initial_r2t: false,
            immediate_data: true,
            max_burst_bytes: 1 << 20,
            first_burst_bytes: 262_144,
            time_to_wait_s: 2,
            time_to_retain_s: 0,
            outstanding_r2t: 8,
        }
    }
}

/// The parameters that are in force; at first the RFC's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// HeaderDigest and DataDigest; in use once the login has ended.
    pub digests: Digests,
    /// InitialR2T: no unsolicited Data-Out.
    pub initial_r2t: bool,
    /// ImmediateData: data within commands.
    pub immediate_data: bool,
    /// The initiator's MaxRecvDataSegmentLength: the longest data segment to send, in bytes.
    pub send_segment_bytes: u32,
    /// MaxBurstLength, in bytes.
    pub max_burst_bytes: u32,
    /// FirstBurstLength, in bytes.
    pub first_burst_bytes: u32,
    /// DefaultTime2Wait, in seconds.
    pub time_to_wait_s: u16,
    /// DefaultTime2Retain, in seconds.
    pub time_to_retain_s: u16,
    /// MaxOutstandingR2T.
    pub outstanding_r2t: u16,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            digests: Digests::default(),
            initial_r2t: true,
            immediate_data: true,
            send_segment_bytes: LOGIN_SEGMENT_BYTES_MAX,
            max_burst_bytes: 262_144,
            first_burst_bytes: 65_536,
            time_to_wait_s: 2,
            time_to_retain_s: 20,
            outstanding_r2t: 1,
        }
    }
}

/// The answer to a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: it declares, and has been taken up where it is a parameter.
    Declared,
    /// The value that is in force now.
    Value(Cow<'static, str>),
    /// It makes no sense in this session.
    Irrelevant,
    /// No such value, or not at this time.
    Reject,
    /// No such key.
    NotUnderstood,
    /// A key of security: the caller's.
    Security,
    /// SendTargets: the caller's.
    Question,
}

impl Answer {
    /// Appends the answer, where the pair needs one that is not the caller's.
    pub fn put(&self, key: &str, out: &mut Vec<u8>) {
        match self {
            Answer::Declared | Answer::Security | Answer::Question => {}
            Answer::Value(value) => put(key, value, out),
            Answer::Irrelevant => put(key, "Irrelevant", out),
            Answer::Reject => put(key, "Reject", out),
            Answer::NotUnderstood => put(key, "NotUnderstood", out),
        }
    }
}

/// Why a negotiation cannot go on: an initiator error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is offered a second time")]
pub struct OfferedTwice(pub &'static str);

/// The state of a connection's negotiation.
#[derive(Clone, Debug)]
pub struct Negotiation {
    wishes: Wishes,
    is_discovery: bool,
    is_full_feature: bool,
    /// A bit for each of [`KEYS`] that was offered.
    seen: u64,
    parameters: Parameters,
}

const _: () = assert!(KEYS.len() <= 64);

impl Negotiation {
    /// Of a login.
    #[must_use]
    pub fn new(wishes: Wishes, is_discovery: bool) -> Negotiation {
        Negotiation {
            wishes,
            is_discovery,
            is_full_feature: false,
            seen: 0,
            parameters: Parameters::default(),
        }
    }

    /// Begins the full feature phase: most keys are refused from now on.
    pub fn finish_login(&mut self) {
        self.is_full_feature = true;
        self.seen = 0;
    }

    /// Begins another exchange of texts in the full feature phase.
    pub fn begin_text(&mut self) {
        assert!(self.is_full_feature, "texts are exchanged after the login");
        self.seen = 0;
    }

    /// The parameters so far. The first burst is no longer than any burst, whatever was offered.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        let first_burst_bytes =
            self.parameters.first_burst_bytes.min(self.parameters.max_burst_bytes);
        Parameters { first_burst_bytes, ..self.parameters }
    }

    /// Takes up a pair of the initiator and says what to answer.
    ///
    /// # Errors
    /// When its key was offered before; keys of security and texts may come again.
    pub fn answer(&mut self, pair: &Pair<'_>) -> Result<Answer, OfferedTwice> {
        let Some((index, key)) = find(pair.key) else { return Ok(Answer::NotUnderstood) };
        // Names and aliases are said in each stage by some initiators, libiscsi among them.
        if !matches!(key.rule, Rule::Security | Rule::Text) {
            if self.seen >> index & 1 == 1 {
                return Err(OfferedTwice(key.name));
            }
            self.seen |= 1 << index;
        }
        // An answer to something that we declared needs none.
        if ["Reject", "Irrelevant", "NotUnderstood"].contains(&pair.value) {
            return Ok(Answer::Declared);
        }
        if self.is_full_feature && !key.full_feature {
            return Ok(Answer::Reject);
        }
        if self.is_discovery && key.normal_only {
            return Ok(Answer::Irrelevant);
        }
        Ok(self.apply(&key, pair.value).unwrap_or(Answer::Reject))
    }

    /// `None` when no such value may be offered.
    fn apply(&mut self, key: &Key, value: &str) -> Option<Answer> {
        match key.rule {
            Rule::List(ours) => {
                let chosen = first_common(value, ours)?;
                self.take_word(key.name, chosen);
                Some(Answer::Value(chosen.into()))
            }
            Rule::And | Rule::Or => {
                let theirs = boolean(value)?;
                let ours = self.wanted_truth(key.name);
                let agreed = if key.rule == Rule::And { theirs && ours } else { theirs || ours };
                self.take_truth(key.name, agreed);
                Some(Answer::Value(boolean_text(agreed).into()))
            }
            Rule::Min(low, high) | Rule::Max(low, high) => {
                let theirs = number(value).filter(|theirs| (low..=high).contains(theirs))?;
                let ours = self.wanted_number(key.name);
                let is_min = matches!(key.rule, Rule::Min(..));
                let agreed = if is_min { theirs.min(ours) } else { theirs.max(ours) };
                self.take_number(key.name, agreed);
                Some(Answer::Value(agreed.to_string().into()))
            }
            Rule::Number(low, high) => {
                let theirs = number(value).filter(|theirs| (low..=high).contains(theirs))?;
                self.take_number(key.name, theirs);
                Some(Answer::Declared)
            }
            Rule::Text => Some(Answer::Declared),
            Rule::Security => Some(Answer::Security),
            Rule::Question if self.is_full_feature => Some(Answer::Question),
            Rule::Question | Rule::Obsolete => None,
        }
    }

    fn wanted_truth(&self, name: &str) -> bool {
        match name {
            "InitialR2T" => self.wishes.initial_r2t,
            "ImmediateData" => self.wishes.immediate_data,
            // Markers: no. Order of data: yes.
            _ => name.starts_with("Data"),
        }
    }

    fn take_truth(&mut self, name: &str, agreed: bool) {
        match name {
            "InitialR2T" => self.parameters.initial_r2t = agreed,
            "ImmediateData" => self.parameters.immediate_data = agreed,
            _ => {}
        }
    }

    fn wanted_number(&self, name: &str) -> u64 {
        match name {
            "MaxConnections" => self.wishes.connections.into(),
            "MaxBurstLength" => self.wishes.max_burst_bytes.into(),
            "FirstBurstLength" => self.wishes.first_burst_bytes.into(),
            "DefaultTime2Wait" => self.wishes.time_to_wait_s.into(),
            "DefaultTime2Retain" => self.wishes.time_to_retain_s.into(),
            "MaxOutstandingR2T" => self.wishes.outstanding_r2t.into(),
            "iSCSIProtocolLevel" => 1,
            // ErrorRecoveryLevel.
            _ => 0,
        }
    }

    fn take_number(&mut self, name: &str, agreed: u64) {
        let long = u32::try_from(agreed).unwrap_or(u32::MAX);
        let short = u16::try_from(agreed).unwrap_or(u16::MAX);
        match name {
            "MaxRecvDataSegmentLength" => self.parameters.send_segment_bytes = long,
            "MaxBurstLength" => self.parameters.max_burst_bytes = long,
            "FirstBurstLength" => self.parameters.first_burst_bytes = long,
            "DefaultTime2Wait" => self.parameters.time_to_wait_s = short,
            "DefaultTime2Retain" => self.parameters.time_to_retain_s = short,
            "MaxOutstandingR2T" => self.parameters.outstanding_r2t = short,
            _ => {}
        }
    }

    fn take_word(&mut self, name: &str, chosen: &str) {
        match name {
            "HeaderDigest" => self.parameters.digests.header = chosen == "CRC32C",
            "DataDigest" => self.parameters.digests.data = chosen == "CRC32C",
            _ => {}
        }
    }
}

/// The first word of a list that is among `ours`.
#[must_use]
pub fn first_common(list: &str, ours: &[&'static str]) -> Option<&'static str> {
    list.split(',').find_map(|word| ours.iter().copied().find(|ours| *ours == word))
}
