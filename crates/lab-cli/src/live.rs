//! A trace sent to a live volume over NBD, in the trace's time or as fast as it goes.
//!
//! One thread sends, one receives; as many requests are under way as `--depth` says. What is
//! written is zeros: only addresses, lengths and times are the trace's.

use std::io::{BufReader, Read, Write};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use lab::times::Times;
use serde::Serialize;
use trace::{Request, RequestKind, Source};
use wire::nbd::{Command, TransmissionFlags};

use terminal::failure::Failure;
use terminal::nbd::{Address, header, reply};

/// The longest request that a server has to take.
const REQUEST_BYTES_MAX: u64 = 32 << 20;
const REPLY_BUFFER_BYTES: usize = 256 << 10;
/// Requests under way at once, at most.
pub const DEPTH_MAX: usize = 1024;

/// How it is sent.
pub struct LiveSettings {
    pub address: Address,
    /// Requests under way at once.
    pub depth: usize,
    /// How many times faster than the trace; `None` is as fast as it goes.
    pub speed: Option<f64>,
    /// Whether writes, trims and flushes are left out.
    pub reads_only: bool,
    /// Whether what the volume holds may be overwritten.
    pub may_overwrite: bool,
}

/// Times of requests of one kind, microseconds.
#[derive(Debug, Serialize)]
pub struct KindTimes {
    pub kind: &'static str,
    pub requests: u64,
    pub failed: u64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// What came out.
#[derive(Debug, Serialize)]
pub struct Live {
    pub requests: u64,
    pub failed: u64,
    /// Requests beyond the export, left out.
    pub beyond: u64,
    pub seconds: f64,
    pub requests_per_second: f64,
    pub bytes_per_second: f64,
    /// How late the latest request was sent, against the trace's time; 0 without its time.
    pub latest_us: f64,
    pub kinds: Vec<KindTimes>,
}

struct Flight {
    kind: RequestKind,
    sent: Instant,
    read_bytes: u64,
}

/// What both threads know.
struct State {
    /// By cookie; free places are `None`.
    flights: Vec<Option<Flight>>,
    times: Vec<Times>,
    failed: Vec<u64>,
    /// Nothing more will be sent.
    is_over: bool,
    error: Option<anyhow::Error>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Sends a trace.
pub fn live(source: &mut dyn Source, settings: &LiveSettings) -> anyhow::Result<Live> {
    let export = settings.address.open()?;
    let writable = !export.flags.has(TransmissionFlags::READ_ONLY) && !settings.reads_only;
    if writable && !settings.may_overwrite {
        return Err(Failure::usage("the trace's writes would overwrite what the volume holds")
            .with_hint("give --overwrite (zeros are written), or --reads-only")
            .into());
    }
    let kinds = RequestKind::ALL.len();
    let state = State {
        flights: (0..settings.depth).map(|_| None).collect(),
        times: (0..kinds).map(|_| Times::new()).collect(),
        failed: vec![0; kinds],
        is_over: false,
        error: None,
    };
    let shared = Shared { state: Mutex::new(state), changed: Condvar::new() };
    let mut receiving = BufReader::with_capacity(REPLY_BUFFER_BYTES, export.socket.again()?);
    let began = Instant::now();
    let mut sender = Sender {
        socket: export.socket,
        size_bytes: export.size_bytes,
        flags: export.flags,
        writable,
        shared: &shared,
        settings,
        began,
        zeros: Vec::new(),
        sent: Sent::default(),
    };
    let sent = std::thread::scope(|scope| {
        scope.spawn(|| receive(&mut receiving, &shared));
        let outcome = sender.all(source);
        if outcome.is_err() {
            sender.socket.end();
        }
        let mut state = shared.lock();
        state.is_over = true;
        shared.changed.notify_all();
        drop(state);
        outcome
    });
    let seconds = began.elapsed().as_secs_f64();
    let Sender { mut socket, sent: totals, .. } = sender;
    let state = shared.state.into_inner().map_err(|_| Failure::new("a thread of it failed"))?;
    if let Some(error) = state.error {
        return Err(error);
    }
    sent?;
    socket.write_all(&header(Command::Disconnect, false, 0, 0, 0))?;
    Ok(told(&state, &totals, seconds))
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

#[derive(Default)]
struct Sent {
    beyond: u64,
    bytes: u64,
    latest: Duration,
}

struct Sender<'a> {
    socket: terminal::nbd::Socket,
    size_bytes: u64,
    flags: TransmissionFlags,
    writable: bool,
    shared: &'a Shared,
    settings: &'a LiveSettings,
    began: Instant,
    zeros: Vec<u8>,
    sent: Sent,
}

impl Sender<'_> {
    fn all(&mut self, source: &mut dyn Source) -> anyhow::Result<()> {
        while let Some(request) = source.next()? {
            if request.device > 0 {
                return Err(Failure::usage("the trace has several devices, a volume is one")
                    .with_hint("`hindsight trace cut --device NAME` keeps one")
                    .into());
            }
            let is_read = request.kind == RequestKind::Read;
            if !is_read && !self.writable {
                continue;
            }
            let is_beyond = request.end_bytes() > self.size_bytes;
            if is_beyond || request.length_bytes > REQUEST_BYTES_MAX {
                self.sent.beyond += 1;
                continue;
            }
            self.pace(request.time_ns);
            self.send(&request)?;
        }
        // The replies that are still to come.
        let mut state = self.shared.lock();
        while state.error.is_none() && state.flights.iter().any(Option::is_some) {
            state = self.shared.changed.wait(state).expect("no holder panics");
        }
        Ok(())
    }

    /// Waits until it is time, and notes how late it is.
    fn pace(&mut self, time_ns: u64) {
        let Some(speed) = self.settings.speed else { return };
        let due = Duration::from_nanos((time_ns as f64 / speed) as u64);
        let now = self.began.elapsed();
        match due.checked_sub(now) {
            Some(early) => std::thread::sleep(early),
            None => self.sent.latest = self.sent.latest.max(now - due),
        }
    }

    fn send(&mut self, request: &Request) -> anyhow::Result<()> {
        let command = match request.kind {
            RequestKind::Read => Command::Read,
            RequestKind::Write => Command::Write,
            RequestKind::Zero => Command::WriteZeroes,
            RequestKind::Trim => Command::Trim,
            RequestKind::Flush => Command::Flush,
        };
        let (offset, length) = match request.kind {
            RequestKind::Flush => (0, 0),
            _ => (request.offset_bytes, request.length_bytes),
        };
        let is_fua = request.is_fua && self.flags.has(TransmissionFlags::FUA);
        let Some(cookie) = self.take_place(request) else { return Ok(()) };
        let mut message = header(command, is_fua, cookie as u64, offset, length);
        if request.kind == RequestKind::Write {
            let length = length as usize;
            self.zeros.resize(self.zeros.len().max(length), 0);
            message.extend_from_slice(&self.zeros[..length]);
        }
        self.sent.bytes += length;
        Ok(self.socket.write_all(&message)?)
    }

    /// A free place, once there is one; `None` when the connection has failed.
    fn take_place(&self, request: &Request) -> Option<usize> {
        let mut state = self.shared.lock();
        loop {
            if state.error.is_some() {
                return None;
            }
            if let Some(place) = state.flights.iter().position(Option::is_none) {
                let is_read = request.kind == RequestKind::Read;
                let read_bytes = if is_read { request.length_bytes } else { 0 };
                let flight = Flight { kind: request.kind, sent: Instant::now(), read_bytes };
                state.flights[place] = Some(flight);
                self.shared.changed.notify_all();
                return Some(place);
            }
            state = self.shared.changed.wait(state).expect("no holder panics");
        }
    }
}

/// Takes replies until all that was sent is answered.
fn receive(socket: &mut impl Read, shared: &Shared) {
    loop {
        let mut state = shared.lock();
        while !state.is_over && state.flights.iter().all(Option::is_none) {
            state = shared.changed.wait(state).expect("no holder panics");
        }
        if state.flights.iter().all(Option::is_none) {
            return;
        }
        drop(state);
        if let Err(error) = receive_one(socket, shared) {
            shared.lock().error = Some(error);
            shared.changed.notify_all();
            return;
        }
    }
}

fn receive_one(socket: &mut impl Read, shared: &Shared) -> anyhow::Result<()> {
    let (cookie, error) = reply(socket)?;
    let place = usize::try_from(cookie)?;
    let flight = shared.lock().flights.get_mut(place).and_then(Option::take);
    let Some(flight) = flight else {
        return Err(Failure::new("the server answered what was not asked").into());
    };
    if error == 0 && flight.read_bytes > 0 {
        let copied = std::io::copy(&mut socket.take(flight.read_bytes), &mut std::io::sink())?;
        if copied < flight.read_bytes {
            return Err(Failure::new("the connection ended within a reply").into());
        }
    }
    let took = u64::try_from(flight.sent.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut state = shared.lock();
    state.times[flight.kind as usize].add(took);
    state.failed[flight.kind as usize] += u64::from(error != 0);
    shared.changed.notify_all();
    Ok(())
}

fn told(state: &State, sent: &Sent, seconds: f64) -> Live {
    let all: u64 = state.times.iter().map(Times::count).sum();
    let row = |kind: RequestKind| {
        let times = &state.times[kind as usize];
        KindTimes {
            kind: kind.name(),
            requests: times.count(),
            failed: state.failed[kind as usize],
            p50_us: times.quantile_us(0.5),
            p90_us: times.quantile_us(0.9),
            p99_us: times.quantile_us(0.99),
            p999_us: times.quantile_us(0.999),
            max_us: times.max_us(),
        }
    };
    Live {
        requests: all,
        failed: state.failed.iter().sum(),
        beyond: sent.beyond,
        seconds,
        requests_per_second: all as f64 / seconds.max(1e-9),
        bytes_per_second: sent.bytes as f64 / seconds.max(1e-9),
        latest_us: sent.latest.as_nanos() as f64 / 1e3,
        kinds: RequestKind::ALL.into_iter().map(row).filter(|row| row.requests > 0).collect(),
    }
}
