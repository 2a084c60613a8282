//! The settings of a share: kept in the record of its volume, so that they go with it through
//! renames, the trash, clones and restarts. The engine keeps them and knows no protocol: the front
//! end goes by them.
//!
//! Invariants
//! 1. A volume is a share from its creation on, or never. As a share it is strict, and its address
//!    space is the largest that there is.
//! 2. Of one network there is one entry; entries are in the order of their networks.
//! 3. Nobody but this machine is granted anything that no entry says.

// `core::net` has addresses and no sockets.
use core::net::IpAddr;
use std::fmt;

use format::share::place::{BLOCK_BYTES, VOLUME_BLOCKS};
use serde::{Deserialize, Serialize};
use units::{Network, WallTime};

use crate::{Error, Result};

/// Bytes of address space of the volume of a share: no promise, as its blocks are far apart.
pub const SHARE_BYTES: u64 = VOLUME_BLOCKS * BLOCK_BYTES as u64;
/// Networks that one share allows.
const ALLOWED_MAX: usize = 1024;
/// User and group of those who are squashed, unless others are named.
const ANONYMOUS_ID: u32 = 65534;
/// Ports below this are given to the superuser of a machine alone.
const FREE_PORTS: u16 = 1024;

/// When the durability of changed names and attributes begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metadata {
    /// Before the answer: they survive a power cut.
    #[default]
    Stable,
    /// Before the answer they are with the operating system: they survive the server.
    Server,
}

/// The users that are taken for nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Squash {
    /// Nobody is.
    None,
    /// The superuser is.
    #[default]
    Root,
    /// Everybody is.
    All,
}

/// The users that may look into the past of a share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PastAccess {
    /// Nobody.
    None,
    /// The superuser.
    Root,
    /// Everybody, by the modes and owners of then.
    #[default]
    All,
}

units::names!(Metadata: Stable "stable", Server "server");
units::names!(Squash: None "none", Root "root", All "all");
units::names!(PastAccess: None "none", Root "root", All "all");

/// A network that may use a share, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    /// The network, or the single address.
    pub network: Network,
    /// Whether it may only read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The users that are taken for nobody.
    #[serde(default)]
    pub squash: Squash,
    /// The user that they are instead.
    #[serde(default = "anonymous_id")]
    pub anonymous_uid: u32,
    /// The group that they are in instead.
    #[serde(default = "anonymous_id")]
    pub anonymous_gid: u32,
    /// Whether it may come from any port; else only from those of a superuser, below 1024.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_port: bool,
    /// The users that may look into the past.
    #[serde(default)]
    pub past: PastAccess,
}

fn anonymous_id() -> u32 {
    ANONYMOUS_ID
}

/// The settings of a share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareSetting {
    /// When changed names and attributes are durable.
    #[serde(default)]
    pub metadata: Metadata,
    /// The networks that may use it. Loopback may, by any port and as whoever it says, as long as
    /// no entry is about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<Allowed>,
    /// Since when reads of files are in the operation log, in nanoseconds since 1970; `None` if
    /// they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_since_ns: Option<u64>,
}

/// The request for other settings of a share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareChange {
    /// When changed names and attributes are durable; `None` leaves it as it is.
    pub metadata: Option<Metadata>,
    /// Whether reads of files are in the operation log from now on; `None` leaves it as it is.
    pub log_reads: Option<bool>,
    /// Networks whose entries go, before others come.
    pub deny: Vec<Network>,
    /// Entries that come, in the places of those of the same networks.
    pub allow: Vec<Allowed>,
}

impl Allowed {
    /// A network that may read and write, from ports below 1024 and with its superuser taken for
    /// nobody.
    #[must_use]
    pub fn new(network: Network) -> Allowed {
        Allowed {
            network,
            read_only: false,
            squash: Squash::default(),
            anonymous_uid: ANONYMOUS_ID,
            anonymous_gid: ANONYMOUS_ID,
            any_port: false,
            past: PastAccess::default(),
        }
    }
}

impl ShareSetting {
    /// The rights of a client at this address and port; `None` are none. Of the entries that are
    /// about the address the one with the longest prefix decides. If there is none, loopback is
    /// granted all, and others nothing.
    #[must_use]
    pub fn grant(&self, ip: IpAddr, port: u16) -> Option<Allowed> {
        let about = self.allowed.iter().filter(|allowed| allowed.network.contains(ip));
        let Some(allowed) = about.max_by_key(|allowed| allowed.network.bits()) else {
            let all = Allowed { squash: Squash::None, any_port: true, ..Allowed::new(ip.into()) };
            return ip.to_canonical().is_loopback().then_some(all);
        };
        (allowed.any_port || port < FREE_PORTS).then_some(*allowed)
    }

    /// The settings after a change at a time.
    ///
    /// # Errors
    /// `NotFound` if what is to go is not there; `Invalid`.
    pub(crate) fn changed(
        &self,
        change: &ShareChange,
        name: &str,
        now: WallTime,
    ) -> Result<ShareSetting> {
        let mut setting = self.clone();
        setting.metadata = change.metadata.unwrap_or(setting.metadata);
        setting.reads_since_ns = match change.log_reads {
            Some(true) => Some(setting.reads_since_ns.unwrap_or(now.as_nanos())),
            Some(false) => None,
            None => setting.reads_since_ns,
        };
        for &network in &change.deny {
            let at = setting.allowed.iter().position(|allowed| allowed.network == network);
            let at = at.ok_or_else(|| {
                Error::not_found(format!("{name} has no entry of {network}")).with_hint(format!(
                    "`hindsight share show {name}` lists those that are allowed, by network"
                ))
            })?;
            setting.allowed.remove(at);
        }
        for &allowed in &change.allow {
            setting.allowed.retain(|other| other.network != allowed.network);
            setting.allowed.push(allowed);
        }
        setting.settle()?;
        Ok(setting)
    }

    /// Brings the entries in order.
    ///
    /// # Errors
    /// `Invalid` if there are too many, or two of one network.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let invalid = |text: String| Error::invalid(text);
        if self.allowed.len() > ALLOWED_MAX {
            let text = format!("a share has {ALLOWED_MAX} allowed networks at most");
            return Err(invalid(text).with_hint("allow a network that contains several of them"));
        }
        self.allowed.sort_by_key(|allowed| allowed.network);
        let twice = self.allowed.windows(2).find(|two| two[0].network == two[1].network);
        match twice {
            Some(two) => Err(invalid(format!("{} is allowed twice", two[0].network))),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Allowed { network, squash, anonymous_uid, anonymous_gid, past, .. } = self;
        let writes = if self.read_only { "reads" } else { "reads and writes" };
        write!(f, "{network} {writes}, squash {}", squash.name())?;
        write!(f, ", anonymous {anonymous_uid}:{anonymous_gid}")?;
        write!(f, ", {}", if self.any_port { "any port" } else { "ports below 1024" })?;
        write!(f, ", past {}", past.name())
    }
}

impl fmt::Display for ShareChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metadata = self.metadata.map(|metadata| format!("metadata {}", metadata.name()));
        let denied = self.deny.iter().map(|network| format!("denied {network}"));
        let allowed = self.allow.iter().map(|allowed| format!("allowed {allowed}"));
        let reads = self.log_reads.map(|on| format!("log reads {}", if on { "on" } else { "off" }));
        let settings = metadata.into_iter().chain(reads);
        let all: Vec<String> = settings.chain(denied).chain(allowed).collect();
        f.write_str(&all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use units::{Network, WallTime};

    use super::{ALLOWED_MAX, Allowed, Metadata, PastAccess, ShareChange, ShareSetting, Squash};
    use crate::{Error, ErrorKind};

    fn network(text: &str) -> Network {
        text.parse().expect("a network")
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn setting(networks: &[&str]) -> ShareSetting {
        let allow = networks.iter().map(|text| Allowed::new(network(text))).collect();
        let change = ShareChange { allow, ..ShareChange::default() };
        changed(&ShareSetting::default(), &change).expect("allowed")
    }

    fn changed(setting: &ShareSetting, change: &ShareChange) -> Result<ShareSetting, Error> {
        setting.changed(change, "s", WallTime::from_nanos(7))
    }

    fn root_is_nobody(about: &str) -> Allowed {
        Allowed {
            network: network(about),
            read_only: false,
            squash: Squash::Root,
            anonymous_uid: 65534,
            anonymous_gid: 65534,
            any_port: false,
            past: PastAccess::All,
        }
    }

    #[test]
    fn this_machine_may_do_all_and_others_nothing_that_no_entry_says() {
        let setting = ShareSetting::default();
        for own in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            let all = Allowed { squash: Squash::None, any_port: true, ..root_is_nobody(own) };
            assert_eq!(setting.grant(ip(own), 40_000), Some(all), "{own}");
        }
        for other in ["10.0.0.7", "128.0.0.1", "::2", "::ffff:10.0.0.7", "0.0.0.0", "::"] {
            assert_eq!(setting.grant(ip(other), 1), None, "{other}");
        }
    }

    #[test]
    fn an_entry_is_for_ports_of_a_superuser_unless_it_says_any() {
        let mut setting = setting(&["10.1.0.0/16"]);
        for (port, granted) in [(1, true), (1023, true), (1024, false), (65535, false)] {
            assert_eq!(setting.grant(ip("10.1.2.3"), port).is_some(), granted, "{port}");
        }
        let granted = root_is_nobody("10.1.0.0/16");
        assert_eq!(setting.grant(ip("10.1.2.3"), 1000), Some(granted));
        assert_eq!(setting.grant(ip("::ffff:10.1.2.3"), 1000), Some(granted));
        assert_eq!(setting.grant(ip("10.2.0.1"), 1000), None);
        setting.allowed[0].any_port = true;
        let granted = Allowed { any_port: true, ..granted };
        assert_eq!(setting.grant(ip("10.1.2.3"), 65535), Some(granted));
    }

    #[test]
    fn the_longest_prefix_decides_whatever_the_order_and_the_outcome() {
        let mut setting = setting(&["10.1.2.3", "10.0.0.0/8", "10.1.0.0/16", "::/0"]);
        for allowed in &mut setting.allowed {
            allowed.anonymous_uid = allowed.network.bits().into();
            allowed.any_port = allowed.network.bits() != 16;
        }
        let decided = |setting: &ShareSetting, at: &str, port| {
            setting.grant(ip(at), port).map(|grant| grant.anonymous_uid)
        };
        for _ in 0..2 {
            assert_eq!(decided(&setting, "10.1.2.3", 9999), Some(32));
            assert_eq!(decided(&setting, "10.1.2.4", 99), Some(16));
            // The wider one would take that port, and is not asked.
            assert_eq!(decided(&setting, "10.1.2.4", 9999), None);
            assert_eq!(decided(&setting, "10.2.2.4", 9999), Some(8));
            assert_eq!(decided(&setting, "fe80::1", 9999), Some(0));
            assert_eq!(decided(&setting, "11.0.0.1", 9), None);
            setting.allowed.reverse();
        }
    }

    #[test]
    fn an_entry_about_loopback_takes_the_place_of_its_rights() {
        for about in ["127.0.0.1", "127.0.0.0/8", "0.0.0.0/0"] {
            let mut setting = setting(&[about]);
            assert_eq!(setting.grant(ip("127.0.0.1"), 9999), None, "{about}");
            let granted = root_is_nobody(about);
            assert_eq!(setting.grant(ip("127.0.0.1"), 999), Some(granted), "{about}");
            setting.allowed[0].read_only = true;
            setting.allowed[0].past = PastAccess::Root;
            let grant = Allowed { read_only: true, past: PastAccess::Root, ..granted };
            assert_eq!(setting.grant(ip("127.0.0.1"), 999), Some(grant), "{about}");
        }
        assert!(setting(&["10.0.0.7"]).grant(ip("::1"), 9999).is_some());
    }

    #[test]
    fn an_entry_replaces_that_of_its_network_and_another_goes_only_if_it_is_there() {
        let before = setting(&["10.1.0.0/16", "10.0.0.7"]);
        assert_eq!(before.allowed[0].network, network("10.0.0.7"));
        let read_only = Allowed { read_only: true, ..Allowed::new(network("10.1.9.9/16")) };
        let change = ShareChange {
            metadata: Some(Metadata::Server),
            log_reads: Some(true),
            deny: vec![network("10.0.0.7")],
            allow: vec![read_only],
        };
        let after = changed(&before, &change).expect("changed");
        let expected = ShareSetting {
            metadata: Metadata::Server,
            allowed: vec![read_only],
            reads_since_ns: Some(7),
        };
        assert_eq!(after, expected);
        assert_eq!(
            change.to_string(),
            "metadata server; log reads on; denied 10.0.0.7; allowed 10.1.0.0/16 reads, squash \
             root, anonymous 65534:65534, ports below 1024, past all"
        );
        // A part of an allowed network is no entry.
        for gone in ["10.0.0.7", "10.1.0.0/17", "10.1.0.1"] {
            let change = ShareChange { deny: vec![network(gone)], ..ShareChange::default() };
            let error = changed(&after, &change).expect_err("not there");
            assert_eq!((error.kind, error.hint.is_some()), (ErrorKind::NotFound, true), "{gone}");
        }
    }

    #[test]
    fn reads_are_logged_since_they_were_first_and_not_since_they_were_again() {
        let logged = |setting: &ShareSetting, log_reads, now| {
            let change = ShareChange { log_reads, ..ShareChange::default() };
            setting.changed(&change, "s", WallTime::from_nanos(now)).expect("changed")
        };
        let on = logged(&ShareSetting::default(), Some(true), 7);
        assert_eq!(on.reads_since_ns, Some(7));
        assert_eq!(logged(&on, Some(true), 9), on);
        assert_eq!(logged(&on, None, 9), on);
        let off = logged(&on, Some(false), 9);
        assert_eq!(off, ShareSetting::default());
        assert_eq!(logged(&off, Some(true), 11).reads_since_ns, Some(11));
    }

    #[test]
    fn entries_have_a_bound() {
        let networks = |count: usize| {
            let all = (0..count).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256));
            all.map(|text| Allowed::new(network(&text))).collect()
        };
        let with = |allow| {
            let change = ShareChange { allow, ..ShareChange::default() };
            changed(&ShareSetting::default(), &change)
        };
        assert_eq!(with(networks(ALLOWED_MAX)).expect("fits").allowed.len(), ALLOWED_MAX);
        let error = with(networks(ALLOWED_MAX + 1)).expect_err("too many");
        assert_eq!((error.kind, error.hint.is_some()), (ErrorKind::Invalid, true));
        let mut twice = setting(&["10.0.0.7"]);
        twice.allowed.push(twice.allowed[0]);
        assert_eq!(twice.settle().expect_err("twice").kind, ErrorKind::Invalid);
    }

    #[test]
    fn settings_are_kept_as_they_are_and_unknown_ones_are_refused() {
        let mut setting = setting(&["10.1.0.0/16", "fd00::/8"]);
        (setting.metadata, setting.reads_since_ns) = (Metadata::Server, Some(7));
        setting.allowed[1] = Allowed {
            read_only: true,
            squash: Squash::All,
            anonymous_uid: 7,
            anonymous_gid: 8,
            any_port: true,
            past: PastAccess::None,
            ..setting.allowed[1]
        };
        let kept = serde_json::to_string(&setting).expect("plain data");
        assert_eq!(serde_json::from_str::<ShareSetting>(&kept).expect("read"), setting);
        let least: ShareSetting =
            serde_json::from_str(r#"{"allowed": [{"network": "10.0.0.7"}]}"#).expect("read");
        assert_eq!(least.allowed, [Allowed::new(network("10.0.0.7"))]);
        for wrong in [
            r#"{"quota": 1}"#,
            r#"{"metadata": "never"}"#,
            r#"{"allowed": [{"network": "10.0.0.7", "until": 1}]}"#,
            r#"{"allowed": [{"network": "10.0.0.7/40"}]}"#,
            r#"{"allowed": [{}]}"#,
        ] {
            assert!(serde_json::from_str::<ShareSetting>(wrong).is_err(), "{wrong}");
        }
        for (kind, name) in Squash::ALL.iter().map(|s| (serde_json::to_value(s), s.name())) {
            assert_eq!(kind.expect("plain data"), name);
        }
        for (kind, name) in PastAccess::ALL.iter().map(|p| (serde_json::to_value(p), p.name())) {
            assert_eq!(kind.expect("plain data"), name);
        }
        for (kind, name) in Metadata::ALL.iter().map(|m| (serde_json::to_value(m), m.name())) {
            assert_eq!(kind.expect("plain data"), name);
        }
    }
}
