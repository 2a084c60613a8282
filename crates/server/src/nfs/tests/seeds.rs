//! Histories of a share and its client, from seeds: calls of NFS on faulty media, with the process
//! killed and the power cut between calls and in the middle of them.
//!
//! The oracle is the model file system. After a kill the tree has all calls that were answered,
//! after a power cut all up to the last that had to be durable; the one under way is there whole,
//! or not at all. The client does as clients do: it sends that call again, under its number, and it
//! is done once; and it sends again what it wrote and had not committed, if the verifier is
//! another, which it is if any of that was lost. The past is what the model was at each moment.
//!
//! A share draws keys and verifiers from the machine's own entropy, so a seed does nearly what it
//! did.
//! `HINDSIGHT_SIM_SEED=N` runs one seed, `HINDSIGHT_SIM_SECONDS=S` seeds from that one on, for so
//! long.

mod tree;

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{BlockDevice, MediaDevice, WriteBuffers};
use env::Media;
use sim::posix::{Kind, Model, Op};
use sim::{Random, SimClock, SimEntropy, SimMedia, SimMemories};
use units::{Moment, Seq, WallTime};
use volume::{
    Architecture, Budget, Machine, Metadata, Pool, PoolFormat, PoolOptions, ShareSetting,
    VolumeSpec,
};
use wire::nfs3::Procedure;

use super::client::{Args, Client, Fh};
use super::rig::{Rig, spec};
use tree::{Answer, ask, compare};

const SECOND_NS: u64 = 1_000_000_000;
const START_NS: u64 = 1_795_255_200 * SECOND_NS;
/// How long a client sends a call again.
const RETRIED_NS: u64 = 200 * SECOND_NS;
/// Steps of a history.
const STEPS: usize = 250;
/// Seeds of the fixed set.
const SEEDS: u64 = 16;
const ARCHITECTURES: [Architecture; 4] = [
    Architecture::Logging,
    Architecture::SplitStream,
    Architecture::Redirect,
    Architecture::Checkpointing,
];

/// A machine: it outlives a process.
struct Ground {
    media: Arc<SimMedia>,
    memories: SimMemories,
    clock: Arc<SimClock>,
    machine: Machine,
    random: Random,
    /// Those of the process that runs, if it has some.
    buffers: Option<WriteBuffers>,
    is_buffered: bool,
}

impl Ground {
    fn new(seed: u64) -> Ground {
        let media = Arc::new(SimMedia::new(512 << 20, seed));
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(START_NS)));
        let machine =
            Machine { clock: Arc::clone(&clock) as _, entropy: Arc::new(SimEntropy::new(seed)) };
        let device: Arc<dyn BlockDevice> = Arc::new(MediaDevice::new(Arc::clone(&media) as _));
        let format = PoolFormat { zone_bytes: 1 << 20 };
        Pool::create(&device, &machine, &format).expect("made");
        Ground {
            memories: SimMemories::of(&media, seed),
            media,
            clock,
            machine,
            random: Random::new(seed ^ 0x6d6f756e74),
            buffers: None,
            is_buffered: seed.is_multiple_of(2),
        }
    }

    /// The pool, opened by a new process.
    fn open(&mut self) -> Arc<Pool> {
        let mut media = Arc::clone(&self.media) as Arc<dyn Media>;
        if self.is_buffered {
            let entropy = Box::new(SimEntropy::new(self.random.next_u64()));
            let buffers = WriteBuffers::new(Box::new(self.memories.clone()), entropy);
            buffers.set_memory_bytes(self.random.below(40) << 20);
            media = buffers.over(media).expect("what was left is written");
            self.buffers = Some(buffers);
        }
        let options = PoolOptions { memory_bytes: 0 };
        let device = Arc::new(MediaDevice::new(media));
        Pool::open(device, self.machine.clone(), options).expect("opened")
    }

    /// Threads of the buffers do some of their work.
    fn work(&mut self) {
        let Some(buffers) = &self.buffers else { return };
        for _ in 0..self.random.below(6) {
            match self.random.below(3) {
                0 => {
                    buffers.tick();
                }
                1 => while self.random.chance(800) && buffers.grow() {},
                _ => {
                    buffers.write_some();
                }
            }
        }
    }

    /// Lets the process die in one of the next changes of media or memory.
    fn arm(&mut self) {
        if self.is_buffered && self.random.chance(600) {
            self.memories.halt_after(self.random.below(8));
        } else {
            self.media.halt_after(self.random.below(5));
        }
    }

    fn is_halted(&self) -> bool {
        self.media.is_halted()
    }

    /// It lives on, if it has not died.
    fn disarm(&self) {
        if !self.is_halted() {
            self.media.calm();
            self.memories.halt_after(u64::MAX);
        }
    }

    fn end(&mut self, is_cut: bool) {
        match is_cut {
            true => self.memories.cut(),
            false => self.memories.kill(),
        }
        self.buffers = None;
        match is_cut {
            true => self.media.crash(&mut self.random),
            false => self.media.kill(),
        }
    }
}

/// A moment: its seq, the last change as the share has it, and the tree.
struct Kept {
    seq: Seq,
    at_ns: u64,
    changed: (u64, WallTime),
    model: Model,
}

/// The action under way when the process died.
enum UnderWay {
    Nothing,
    /// A call, how safe it is to be, and the tree once it is done.
    Call {
        op: Op,
        record: Vec<u8>,
        stable: u32,
        after: Option<Model>,
    },
    /// A revert to a moment.
    Revert(usize),
}

/// Counts over all seeds, so that nothing is tried in name only.
#[derive(Debug, Default)]
struct Seen {
    calls: u64,
    kills: u64,
    cuts: u64,
    /// Calls under way that were found done, and not.
    done: u64,
    not_done: u64,
    /// Calls that were sent again and not done again.
    replayed: u64,
    /// Answered calls that power cuts took, and uncommitted WRITEs among them.
    lost: u64,
    lost_writes: u64,
    reverts: u64,
    moments: u64,
    expired: u64,
}

struct History<'s> {
    ground: Ground,
    rig: Option<Rig>,
    client: Client,
    top: Fh,
    setting: ShareSetting,
    window_ns: u64,
    /// Between calls.
    pace_ns: u64,
    model: Model,
    moments: Vec<Kept>,
    /// The last change, as the share has it.
    changed: (u64, WallTime),
    /// So many of them are there after a power cut.
    durable: usize,
    /// WRITEs that were not committed, and the moments after them.
    uncommitted: Vec<(usize, Op)>,
    verifier: Option<[u8; 8]>,
    /// The last call that changed something, and when; to be sent again.
    last: Option<(Vec<u8>, u64)>,
    seen: &'s mut Seen,
}

impl<'s> History<'s> {
    fn begin(seed: u64, seen: &'s mut Seen) -> History<'s> {
        let mut ground = Ground::new(seed);
        let metadata = [Metadata::Stable, Metadata::Server][(seed / 2 % 2) as usize];
        let setting = ShareSetting { metadata, ..ShareSetting::default() };
        // Pruning trusts a clock only once it has gone evenly for minutes.
        let (window_ns, pace_ns) = match seed.is_multiple_of(3) {
            true => (600 * SECOND_NS, 40 * SECOND_NS),
            false => (1 << 60, SECOND_NS),
        };
        let architecture = ARCHITECTURES[(seed / 4 % 4) as usize];
        let pool = ground.open();
        let spec = VolumeSpec { window_ns, architecture, ..spec(setting.clone()) };
        pool.create_volume(&spec).expect("a share");
        let rig = Rig::serve(None, pool);
        let mut client = Client::connect(rig.address);
        let top = client.mount("/s").expect("a handle");
        let mut history = History {
            ground,
            rig: Some(rig),
            client,
            top,
            setting,
            window_ns,
            pace_ns,
            model: Model::new(START_NS),
            moments: Vec::new(),
            changed: (0, WallTime::from_nanos(0)),
            durable: 0,
            uncommitted: Vec::new(),
            verifier: None,
            last: None,
            seen,
        };
        history.rig().share().flush_while(&|| true).expect("flushed");
        history.keep();
        history.changed = history.found();
        history.durable = 1;
        history
    }

    fn rig(&self) -> &Rig {
        self.rig.as_ref().expect("it runs")
    }

    /// Operations so far, and the last change, as the share has them.
    fn found(&self) -> (u64, WallTime) {
        let statistics = self.rig().opened().share().statistics();
        (statistics.operations, statistics.changed)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.ground.random.below(bound as u64) as usize
    }

    /// The tree is a moment from now on.
    fn keep(&mut self) {
        let kept = Kept {
            seq: self.rig().share().last_seq(),
            at_ns: self.now(),
            changed: self.found(),
            model: self.model.clone(),
        };
        self.moments.push(kept);
    }

    fn compare(&mut self) {
        let part_bytes = 200 + self.ground.random.below(4000) as u32;
        compare(&mut self.client, &self.top, &self.model, part_bytes);
    }

    /// An answer to a call came, which is the model's; the tree is a moment more if it changed.
    fn answered(&mut self, op: &Op, (record, stable): (Vec<u8>, u32), answer: &Answer) {
        self.seen.calls += 1;
        let found = self.found();
        let before = std::mem::replace(&mut self.changed, found);
        let expected = self.model.apply(op, self.now());
        let answer = answer.as_ref().expect("it is one");
        assert_eq!(answer.as_ref().map(drop), expected.as_ref().map(drop), "{op:?}");
        if self.changed == before {
            // Nothing is written for it: a name that is a link of the other, no bytes.
            assert_eq!(self.model, self.moments.last().expect("one").model, "{op:?}");
            return;
        }
        assert!(expected.is_ok(), "{op:?} is refused and changes something");
        self.keep();
        let is_write = matches!(op, Op::Write(..));
        self.last = (!is_write).then(|| (record, self.now()));
        let Ok(results) = answer else { unreachable!("as expected") };
        if is_write {
            let verifier: [u8; 8] = results[results.len() - 8..].try_into().expect("eight");
            let known = self.verifier.replace(verifier);
            assert!(known.is_none_or(|known| known == verifier), "another one, and nothing ended");
        }
        if is_write && stable == 0 {
            self.uncommitted.push((self.moments.len(), op.clone()));
        } else if is_write || self.setting.metadata == Metadata::Stable {
            self.durable = self.moments.len();
        }
    }

    fn now(&self) -> u64 {
        self.ground.machine.clock.wall().as_nanos()
    }

    /// Does an operation; what was under way, if the process died.
    fn perform(&mut self, op: &Op, is_armed: bool) -> Option<UnderWay> {
        self.ground.clock.advance(self.pace_ns);
        let stable = [0, 0, 0, 1, 2][self.below(5)];
        let call = match tree::call(&mut self.client, &self.top, op, stable) {
            Ok(call) => call,
            Err(refusal) => {
                assert_eq!(self.model.apply(op, 0), Err(refusal), "{op:?}");
                return None;
            }
        };
        let record = call.record(&mut self.client);
        if is_armed {
            self.ground.arm();
        }
        let answer = ask(&mut self.client, &record);
        if answer.is_none() {
            assert!(self.ground.is_halted(), "{op:?} is not answered");
            let mut after = self.model.clone();
            let after = after.apply(op, self.now()).is_ok().then_some(after);
            return Some(UnderWay::Call { op: op.clone(), record, stable, after });
        }
        self.answered(op, (record, stable), &answer);
        self.ground.is_halted().then_some(UnderWay::Nothing)
    }

    fn commit(&mut self, is_armed: bool) -> Option<UnderWay> {
        let path = self.paths().1?;
        let file = self.client.find(&self.top, &path).expect("it is there");
        if is_armed {
            self.ground.arm();
        }
        let Ok(found) = self.client.commit(&file) else {
            assert!(self.ground.is_halted(), "COMMIT fails");
            return Some(UnderWay::Nothing);
        };
        let known = self.verifier.replace(found);
        assert!(known.is_none_or(|known| known == found), "another one, and nothing ended");
        self.uncommitted.clear();
        self.durable = self.moments.len();
        self.ground.is_halted().then_some(UnderWay::Nothing)
    }

    /// The paths of all that is there, and of a file.
    fn paths(&self) -> (Vec<String>, Option<String>) {
        let (mut all, mut file) = (Vec::new(), None);
        let mut waiting = vec![(sim::posix::ROOT, String::new())];
        while let Some((node, path)) = waiting.pop() {
            match &self.model.nodes[&node].kind {
                Kind::Directory(entries, _) => {
                    for (name, inode) in entries {
                        let slash = if path.is_empty() { "" } else { "/" };
                        let name = String::from_utf8_lossy(name);
                        waiting.push((*inode, format!("{path}{slash}{name}")));
                    }
                }
                Kind::File(..) => file = Some(path.clone()),
                Kind::Symlink(_) | Kind::Fifo => {}
            }
            all.push(path);
        }
        // The root is moved and removed by nobody.
        all.remove(0);
        (all, file)
    }

    /// The process dies; what it left is looked at, and the client goes on.
    fn die(&mut self, under_way: UnderWay) {
        let is_cut = self.ground.random.chance(500);
        self.ground.media.halt_now();
        self.client.close();
        self.rig.take().expect("it runs").down();
        self.ground.end(is_cut);
        *(if is_cut { &mut self.seen.cuts } else { &mut self.seen.kills }) += 1;
        let rig = Rig::serve(None, self.ground.open());
        let xid = self.client.xid;
        self.client = Client::connect(rig.address);
        self.client.xid = xid;
        self.rig = Some(rig);

        let least = if is_cut { self.durable } else { self.moments.len() };
        let answered = self.moments.len();
        let found = self.found();
        self.changed = found;
        // A moment that was reverted to is there twice.
        let is_moment = |found: Option<usize>, to: usize| {
            found.is_some_and(|found| self.moments[found].changed == self.moments[to].changed)
        };
        match self.moments.iter().rposition(|moment| moment.changed == found) {
            Some(last) if last + 1 >= least => {
                self.moments.truncate(last + 1);
                self.model = self.moments[last].model.clone();
            }
            found => match &under_way {
                UnderWay::Revert(to) if is_moment(found, *to) => {
                    self.model = self.moments[*to].model.clone();
                    self.keep();
                }
                UnderWay::Call { after: Some(after), .. } if found.is_none() => {
                    self.seen.done += 1;
                    self.model = after.clone();
                    self.keep();
                }
                _ => panic!("moment {found:?} of {answered}, and {least} have to be there"),
            },
        }
        let kept = self.moments.len();
        self.compare();
        let lost = answered.saturating_sub(kept);
        self.seen.lost += lost as u64;
        self.durable = self.durable.min(kept);
        self.send_again(under_way, kept > answered, lost > 0);
        let is_lost = |(moment, _): &&(usize, Op)| *moment > kept;
        let lost_writes = self.uncommitted.iter().filter(is_lost).count();
        self.seen.lost_writes += lost_writes as u64;
        self.write_again(lost_writes > 0);
    }

    /// Calls are sent again under their numbers: the one under way, or the last that was answered.
    fn send_again(&mut self, under_way: UnderWay, was_done: bool, was_lost: bool) {
        // Handles of calls may be of what is lost.
        let is_new = |age_ns| age_ns < RETRIED_NS;
        let last = self.last.take().filter(|(_, at)| !was_lost && is_new(self.now() - at));
        match under_way {
            UnderWay::Call { op, record, stable, after } if !was_lost => {
                self.ground.clock.advance(self.pace_ns);
                let answer = self.again(&record);
                if was_done && !matches!(op, Op::Write(..)) {
                    assert!(after.is_some(), "it changed something");
                    assert_eq!(answer.expect("answered").map(drop), Ok(()), "{op:?} once more");
                    assert_eq!(self.found(), self.changed, "{op:?} is done twice");
                    self.seen.replayed += 1;
                } else {
                    self.seen.not_done += u64::from(!was_done);
                    // The verifier is another, whose first is this, or one of `write_again`.
                    let known = self.verifier.take();
                    self.answered(&op, (record, stable), &answer);
                    self.verifier = known;
                }
            }
            _ => {
                let Some((record, _)) = last else { return };
                let answer = self.again(&record).expect("answered");
                assert_eq!(answer.map(drop), Ok(()), "once more");
                assert_eq!(self.found(), self.changed, "done twice");
                self.seen.replayed += 1;
            }
        }
    }

    /// Sends a call once more, under its number.
    fn again(&mut self, record: &[u8]) -> Answer {
        let number = u32::from_be_bytes(record[4..8].try_into().expect("four"));
        let next = std::mem::replace(&mut self.client.xid, number);
        let answer = ask(&mut self.client, record);
        self.client.xid = next;
        answer
    }

    /// Writes that were not committed are sent again if the verifier is another.
    fn write_again(&mut self, is_lost: bool) {
        if !is_lost && self.uncommitted.is_empty() && self.ground.random.chance(500) {
            // There is nothing to ask for.
            self.verifier = None;
            return;
        }
        let Some(file) = self.paths().1 else {
            self.uncommitted.clear();
            self.verifier = None;
            return;
        };
        let file = self.client.find(&self.top, &file).expect("it is there");
        let found = self.client.commit(&file).expect("flushed");
        let known = self.verifier.replace(found);
        self.durable = self.moments.len();
        let writes = std::mem::take(&mut self.uncommitted);
        if known == Some(found) {
            assert!(!is_lost, "WRITEs were lost, and the client is not told");
            return;
        }
        for (_, op) in writes {
            let ended = self.perform(&op, false);
            assert!(ended.is_none(), "nothing is to end it");
        }
    }

    fn revert(&mut self, is_armed: bool) -> Option<UnderWay> {
        let to = self.below(self.moments.len());
        let (seq, changed) = (self.moments[to].seq, self.moments[to].changed);
        let volume = self.rig().share();
        let is_there = volume.resolve(&Moment::Seq(seq)).is_ok_and(|found| found.seq == seq);
        if !is_there || volume.last_seq() == seq {
            return None;
        }
        if is_armed {
            self.ground.arm();
        }
        let volumes = std::slice::from_ref(&volume);
        let revert = || volume.revert(&Moment::Seq(seq), false);
        let reverted = self.rig().shares.revert(volumes, revert);
        if let Err(error) = reverted {
            assert!(self.ground.is_halted(), "{error}");
            return Some(UnderWay::Revert(to));
        }
        self.seen.reverts += 1;
        self.model = self.moments[to].model.clone();
        let (seq, at_ns) = (volume.last_seq(), self.now());
        self.moments.push(Kept { seq, at_ns, changed, model: self.model.clone() });
        // It is durable, and clients have to send again what they had not committed.
        self.durable = self.moments.len();
        self.last = None;
        if self.ground.is_halted() {
            return Some(UnderWay::Nothing);
        }
        drop(volume);
        self.changed = self.found();
        self.compare();
        self.write_again(true);
        None
    }

    /// A moment of the past is what it was, by a mount or from inside.
    fn look_back(&mut self) {
        let index = self.below(self.moments.len());
        let Kept { seq, at_ns, ref model, .. } = self.moments[index];
        let model = model.clone();
        let moment = format!("seq:{}", seq.0);
        let top = match self.ground.random.chance(500) {
            true => self.client.mount(&format!("/s@{moment}")).ok(),
            false => self.client.find(&self.top, &format!(".hindsight/{moment}")).ok(),
        };
        let Some(top) = top else {
            let oldest = self.rig().share().info().expect("told").oldest.seq;
            assert!(seq < oldest && self.window_ns < 1 << 60, "{moment}, and {oldest:?} is oldest");
            assert!(self.now() - at_ns >= self.window_ns, "{moment} is in the window");
            self.seen.expired += 1;
            return;
        };
        self.seen.moments += 1;
        compare(&mut self.client, &top, &model, 1000);
        let refused = self.client.nfs(Procedure::Remove, Args::default().at(&top, "a"));
        refused.expect_err("the past is not changed");
    }

    fn background(&mut self, is_armed: bool) -> Option<UnderWay> {
        if is_armed {
            self.ground.arm();
        }
        let budget = Budget { bytes: 1 << 20 };
        loop {
            match self.rig().pool.step(budget) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    assert!(self.ground.is_halted(), "{error}");
                    break;
                }
            }
        }
        self.ground.work();
        self.ground.is_halted().then_some(UnderWay::Nothing)
    }

    fn step(&mut self) {
        let is_armed = self.ground.random.chance(200);
        let ended = match self.below(40) {
            0 | 1 => self.commit(is_armed),
            2 => self.background(is_armed),
            3 => Some(UnderWay::Nothing),
            4 => self.revert(is_armed),
            5 | 6 => {
                self.look_back();
                None
            }
            _ => {
                let there = self.paths().0;
                let op = random_op(&mut self.ground.random, &there);
                self.perform(&op, is_armed)
            }
        };
        match ended {
            Some(under_way) => self.die(under_way),
            None => self.ground.disarm(),
        }
        self.ground.work();
        self.compare();
    }
}

fn random_path(random: &mut Random) -> String {
    let directory = ["", "", "", "d/", "d/", "d/e/", "b/"][random.below(7) as usize];
    match random.below(8) {
        0 => ["d", "d/e"][random.below(2) as usize].to_owned(),
        _ => format!("{directory}{}", ["a", "b", "c"][random.below(3) as usize]),
    }
}

/// Near the edges of inline content, blocks and slabs, and far out.
fn random_offset(random: &mut Random) -> u64 {
    let edges = [0_u64, 3584, 4096, 8192, 16_384, 65_536, 1 << 20, 1 << 32, (16 << 40) - 4096];
    let (edge, near) = (edges[random.below(9) as usize], random.below(5000));
    match random.below(4) {
        0 => edge.saturating_sub(near),
        1 => edge + near % 3000,
        _ => random.below(9000),
    }
}

fn random_bytes(random: &mut Random) -> Vec<u8> {
    let ranges = [(0, 100), (3000, 5000), (4090, 21_000), (60_000, 140_000)];
    let (least, end) = ranges[random.below(4) as usize];
    let mut bytes = vec![0; (least + random.below(end - least)) as usize];
    random.fill(&mut bytes);
    bytes
}

fn random_op(random: &mut Random, there: &[String]) -> Op {
    // Mostly of what is there, or nothing much would happen.
    let first = match random.below(there.len() as u64 * 2 + 2) as usize {
        at if at < there.len() => there[at].clone(),
        _ => random_path(random),
    };
    let second = random_path(random);
    match random.below(37) {
        0..4 => Op::Create(first),
        4..6 => {
            let size = random.chance(500).then(|| random_offset(random));
            Op::Open(first, size)
        }
        6 => Op::Exclusive(first, random.below(3) as u8),
        7..10 => Op::Mkdir(first),
        10 => Op::Symlink(first, vec![b'x'; 1 + random.below(1000) as usize]),
        11 => Op::Fifo(first),
        12..14 => Op::Link(first, second),
        14..17 => Op::Remove(first),
        17..19 => Op::Rmdir(first),
        19..23 => Op::Rename(first, second),
        23..31 => Op::Write(first, random_offset(random), random_bytes(random)),
        31..34 => Op::Resize(first, random_offset(random)),
        34 => Op::Mode(first, random.below(0o1000) as u16),
        35 => Op::Owner(first, random.below(3) as u32, random.below(3) as u32),
        _ => {
            let time = |random: &mut Random| START_NS - random.below(START_NS);
            Op::Times(first, time(random), time(random))
        }
    }
}

fn play(seed: u64, seen: &mut Seen) {
    let told = ToldOnPanic(seed);
    let mut history = History::begin(seed, seen);
    for _ in 0..STEPS {
        history.step();
    }
    // Every moment once more, and all of it by another process.
    for _ in 0..20 {
        history.look_back();
    }
    history.die(UnderWay::Nothing);
    for _ in 0..20 {
        history.look_back();
    }
    std::mem::forget(told);
}

/// Says how to run a seed again that failed.
struct ToldOnPanic(u64);

impl Drop for ToldOnPanic {
    fn drop(&mut self) {
        println!(
            "HINDSIGHT_SIM_SEED={} cargo test -p hindsight-server --lib nfs::tests::seeds",
            self.0
        );
    }
}

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

#[test]
fn a_share_and_its_client_hold_through_kills_and_power_cuts() {
    let (first, seconds) =
        (number_from("HINDSIGHT_SIM_SEED"), number_from("HINDSIGHT_SIM_SECONDS"));
    let mut seen = Seen::default();
    if let Some(seconds) = seconds {
        let (begin, mut seed) = (Instant::now(), first.unwrap_or(1));
        while begin.elapsed() < Duration::from_secs(seconds) {
            play(seed, &mut seen);
            seed += 1;
        }
        println!("ran seeds {} to {}: {seen:?}", first.unwrap_or(1), seed - 1);
        return;
    }
    if let Some(seed) = first {
        return play(seed, &mut seen);
    }
    for seed in 1..=SEEDS {
        play(seed, &mut seen);
    }
    println!("{seen:?}");
    let Seen { done, not_done, replayed, lost, lost_writes, moments, expired, .. } = seen;
    assert!(seen.calls > 1000 && seen.kills > 50 && seen.cuts > 50 && seen.reverts > 40);
    assert!(done > 8 && not_done > 15 && replayed > 40 && lost > 10 && lost_writes > 2);
    assert!(moments > 400 && expired > 5);
}
