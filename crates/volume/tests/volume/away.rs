//! Members that were away while zones became another's.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::Arc;

use block::{BlockDevice, Guard, IntegrityDevice, IntegrityOptions, MediaDevice, Result, Standing};
use format::integrity::{ChecksumSector, GROUPS_OFFSET, IntegrityHeader, SectorState};
use format::superblock::{COPY_OFFSETS, Superblock};
use hindsight_volume::{Budget, Pool};
use sim::SimMedia;

use crate::hook::{SECOND_NS, put};
use crate::scrub::{Pair, fill};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// What is behind a member's label.
struct Member(MediaDevice);

impl BlockDevice for Member {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes() - MIB
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.read_at(MIB + offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.0.write_at(MIB + offset, slices)
    }
    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.0.allocate(MIB + offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.0.discard(MIB + offset, length_bytes)
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

fn member(media: &Arc<SimMedia>) -> Member {
    Member(MediaDevice::new(Arc::<SimMedia>::clone(media)))
}

fn open(media: &Arc<SimMedia>) -> IntegrityDevice<Member> {
    let options = IntegrityOptions::default();
    IntegrityDevice::open(member(media), options, Arc::default()).expect("an integrity device")
}

/// The sectors of checksums that lie in the catalogue's zones and are exempt on a member.
fn exempt(media: &Arc<SimMedia>) -> BTreeSet<u64> {
    let mut bytes = vec![0; 512];
    let below = member(media);
    below.read_at(0, &mut bytes).expect("a header");
    let tag = IntegrityHeader::decode(&bytes, 0).expect("sound").tag();
    let above = open(media);
    let mut page = vec![0; BLOCK as usize];
    above.read_at(COPY_OFFSETS[0], &mut page).expect("a superblock");
    let superblock = Superblock::decode(&page, 0).expect("sound");
    assert!(!superblock.catalogue_zones.is_empty());
    let per_zone = superblock.zone_bytes / BLOCK;
    let first = |zone: &u32| u64::from(*zone) * per_zone;
    let blocks = superblock.catalogue_zones.iter().flat_map(|z| first(z)..first(z) + per_zone);
    let sectors: BTreeSet<u64> = blocks.map(|b| b / 960 * 8 + b % 960 / 120).collect();
    let is_exempt = |sector: &u64| {
        let at = GROUPS_OFFSET + sector / 8 * 961 * BLOCK + sector % 8 * 512;
        below.read_at(at, &mut bytes).expect("a page");
        let number = u32::try_from(*sector).expect("few");
        let found = ChecksumSector::decode(&bytes, tag, number).expect("sound");
        found.is_some_and(|sector| sector.state == SectorState::Exempt)
    };
    sectors.into_iter().filter(is_exempt).collect()
}

#[test]
fn a_member_that_was_away_has_checksums_of_the_catalogue_when_it_is_in() {
    let pair = Pair::new("mirror(integrity(a), integrity(b))");
    let pool = pair.open();
    let volume = fill(&pool);
    pool.close().expect("closed");
    drop((pool, volume));
    let pool = pair.open_on_one();
    let volume = pool.volume("v").expect("there");
    put(&volume, 7, 77);
    pool.close().expect("closed");
    drop((pool, volume));
    // As if these zones had been the log's when it went away, and had become the catalogue's since.
    let away = open(&pair.media[1]);
    for zone in 1..away.len_bytes() / MIB {
        away.guard(zone * MIB, MIB, Guard::Owner).expect("a guard");
    }
    away.flush().expect("a flush");
    drop(away);
    assert!(!exempt(&pair.media[1]).is_empty(), "something is to be guarded again");
    let pool = pair.open();
    let is_in = || pool.members().iter().all(|member| member.standing == Standing::In);
    while !is_in() {
        pair.clock.advance(SECOND_NS);
        pool.step(Budget { bytes: MIB }).expect("a step");
    }
    pool.close().expect("closed");
    drop(pool);
    assert_eq!(exempt(&pair.media[1]), BTreeSet::new());
    assert_eq!(exempt(&pair.media[0]), BTreeSet::new());
    drop(pair.open());
}

#[test]
fn what_happened_to_members_is_in_the_audit_log_when_it_is_asked_for() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let volume = fill(&pool);
    pool.close().expect("closed");
    drop((pool, volume));
    // No step in between: whoever sees a member that is out finds it in the log as well.
    let told = |pool: &Pool, action: &str| {
        let records = pool.audit(0, 1000).expect("the log");
        records.iter().filter(|record| record.action == action).count()
    };
    let pool = pair.open_on_one();
    assert!(pool.members().iter().any(|member| member.standing == Standing::Out));
    assert_eq!(told(&pool, "member-out"), 1);
    assert_eq!(told(&pool, "member-out"), 1, "once");
}
