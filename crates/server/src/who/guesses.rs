//! Wrong tokens: counted, so that guessing is seen and answered with less. A right token is let in
//! whatever others have shown.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use env::{Rank, RankedMutex};

/// For how long wrong tokens are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Wrong tokens within that from one address, and from all, that are told what they are.
const OF_ADDRESS_MAX: u32 = 10;
const OF_ALL_MAX: u32 = 100;
/// How long after a line for an address there is another.
const QUIET: Duration = Duration::from_secs(5);
/// Lines within a window for all addresses.
const LINES_MAX: u32 = 30;

/// The wrong tokens of a minute.
#[derive(Debug)]
pub(crate) struct Guesses(RankedMutex<Counted>);

#[derive(Debug)]
struct Counted {
    since: Instant,
    all: u32,
    lines: u32,
    by_address: HashMap<IpAddr, OfAddress>,
}

#[derive(Debug, Default)]
struct OfAddress {
    count: u32,
    /// Not yet in a line.
    untold: u32,
    told: Option<Instant>,
}

/// How to answer a wrong token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    /// How long to wait before the next, if there were too many.
    pub(crate) wait: Option<Duration>,
    /// How many the audit log is to tell of now.
    pub(crate) line: Option<u32>,
}

impl Guesses {
    pub(crate) fn new() -> Guesses {
        let (since, by_address) = (Instant::now(), HashMap::new());
        let counted = Counted { since, all: 0, lines: 0, by_address };
        Guesses(RankedMutex::new(Rank::Leaf, counted))
    }

    /// Counts a wrong token of an address; those of unix sockets have none.
    pub(crate) fn note(&self, address: Option<IpAddr>, now: Instant) -> Judged {
        let mut counted = self.0.lock();
        if now.duration_since(counted.since) >= WINDOW {
            counted.since = now;
            (counted.all, counted.lines) = (0, 0);
            // Nobody's line comes sooner for that.
            counted.by_address.retain(|_, of| {
                of.count = 0;
                of.told.is_some_and(|told| now.duration_since(told) < QUIET)
            });
        }
        counted.all = counted.all.saturating_add(1);
        let left = WINDOW.saturating_sub(now.duration_since(counted.since));
        let is_full = counted.all > OF_ALL_MAX;
        let may_tell = counted.lines < LINES_MAX;
        let key = address.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), neighbours);
        // As many addresses are remembered as may be answered, so that this stays small.
        if is_full && !counted.by_address.contains_key(&key) {
            return Judged { wait: Some(left), line: None };
        }
        let of = counted.by_address.entry(key).or_default();
        of.count = of.count.saturating_add(1);
        of.untold = of.untold.saturating_add(1);
        let is_quiet = of.told.is_none_or(|told| now.duration_since(told) >= QUIET);
        let line = (is_quiet && may_tell).then(|| {
            of.told = Some(now);
            std::mem::take(&mut of.untold)
        });
        let wait = (is_full || of.count > OF_ADDRESS_MAX).then_some(left);
        counted.lines += u32::from(line.is_some());
        Judged { wait, line }
    }
}

/// An address with those that one machine can take as well: a network of IPv6.
fn neighbours(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::{Duration, Instant};

    use super::Guesses;

    #[test]
    fn too_many_wrong_tokens_of_one_address_or_of_all_are_told_to_wait() {
        let (guesses, start) = (Guesses::new(), Instant::now());
        let address = |n: u8| Some(IpAddr::from([10, 0, 0, n]));
        let waits = |n, at: u64| guesses.note(address(n), start + Duration::from_secs(at)).wait;
        for _ in 0..10 {
            assert_eq!(waits(1, 1), None);
        }
        assert!(waits(1, 1).is_some_and(|wait| wait <= Duration::from_secs(60)));
        assert_eq!(waits(2, 1), None, "another address");
        for n in 3..30 {
            for _ in 0..4 {
                waits(n, 2);
            }
        }
        assert!(waits(40, 2).is_some(), "all of them");
        assert_eq!(waits(1, 62), None, "the next minute");
    }

    #[test]
    fn an_address_has_a_line_in_five_seconds_that_tells_of_all_since_the_last() {
        let (guesses, start) = (Guesses::new(), Instant::now());
        let address: IpAddr = "2001:db8::1".parse().expect("an address");
        let line = |address, at_ms: u64| {
            guesses.note(Some(address), start + Duration::from_millis(at_ms)).line
        };
        assert_eq!(line(address, 0), Some(1));
        for at in 1..5 {
            assert_eq!(line(address, at * 1000), None);
        }
        assert_eq!(line("2001:db8::2".parse().expect("its neighbour"), 5000), Some(5));
        assert_eq!(line(address, 58_000), Some(1));
        assert_eq!(line(address, 61_000), None, "a new minute is no new line");
        assert_eq!(line("2001:db9::1".parse().expect("another"), 61_000), Some(1));
    }
}
