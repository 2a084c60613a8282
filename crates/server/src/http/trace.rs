//! Recording a volume: its requests as a trace, sent while they come.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use api::{ProblemKind, RecordQuery, TRACE_MEDIA_TYPE};
use axum::body::Body as AxumBody;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::{Body, Bytes, Frame};
use tokio::time::{Interval, MissedTickBehavior, interval};
use trace::native::{FRAME_HEADER_BYTES, FrameEncoder, REQUEST_BYTES_MAX, TraceHeader};
use units::{Size, Span};
use volume::Volume;

use super::answer::{Answer, Refusal};
use super::ask::{Asked, Named};
use super::context::Context;
use crate::taps::{Noted, Tap};
use crate::who::{self, Caller};

/// How often what was noted is sent.
const TICK: Duration = Duration::from_millis(50);
/// How long a recording may be.
const LONGEST_NS: u64 = 7 * 24 * 3600 * 1_000_000_000;
/// The least limit of bytes.
const LIMIT_BYTES_MIN: u64 = 4 << 10;
/// The bytes that one more request and the end may take.
const ROOM_BYTES: u64 = (2 * FRAME_HEADER_BYTES + REQUEST_BYTES_MAX) as u64;

/// Sends the requests of NBD clients to the present of a volume, as they come, as a trace.
#[utoipa::path(get, path = "/volumes/{volume}/trace", tag = "history",
    params(RecordQuery),
    responses(
        (status = 200, description = "A trace (docs/format/trace.md); it ends with an end frame",
            content_type = "application/vnd.hindsight.trace"),
        (status = 409, description = "As many recordings as may be are under way"),
    ))]
pub(super) async fn record(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<RecordQuery>,
) -> Answer<Response> {
    let length = query.length.as_deref().map(length).transpose()?;
    let limit_bytes = query.limit.as_deref().map(limit).transpose()?.unwrap_or(u64::MAX);
    let volume = context.called().volume(&name)?;
    let Some(tap) = context.taps.listen(volume.id(), length) else {
        return Err(Refusal::new(ProblemKind::Busy, "as many recordings as may be are under way")
            .with_hint("wait for one to end"));
    };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let recording = Recording {
        first: Some(first_frames(&tap, volume.name())),
        tap,
        volume: Arc::downgrade(&volume),
        caller: who::caller().map(|(caller, _)| caller),
        context,
        ticks,
        limit_bytes,
        sent_bytes: 0,
        encoder: FrameEncoder::default(),
        requests: 0,
        sealed: 0,
        last_ns: 0,
        is_over: false,
    };
    Ok(([(CONTENT_TYPE, TRACE_MEDIA_TYPE)], AxumBody::new(recording)).into_response())
}

fn length(text: &str) -> Answer<Duration> {
    let span: Span = text.parse()?;
    if span.as_nanos() > LONGEST_NS {
        let hint = "give at most 7d".to_owned();
        return Err(Refusal::malformed(format!("{text} is too long"), Some(hint)));
    }
    Ok(Duration::from_nanos(span.as_nanos()))
}

fn limit(text: &str) -> Answer<u64> {
    let size: Size = text.parse()?;
    if size.bytes() < LIMIT_BYTES_MIN {
        let hint = format!("give at least {}", Size(LIMIT_BYTES_MIN));
        return Err(Refusal::malformed(format!("{text} is too little for a trace"), Some(hint)));
    }
    Ok(size.bytes())
}

/// The header, and the name of the volume as the trace's only device.
fn first_frames(tap: &Tap, volume: &str) -> Vec<u8> {
    let mut bytes = TraceHeader { start: tap.start_ns() }.encode().to_vec();
    bytes.extend(FrameEncoder::name(volume, 0));
    bytes
}

/// The body of the answer.
struct Recording {
    first: Option<Vec<u8>>,
    tap: Tap,
    /// Its name may be another one later, and that which it had another volume's.
    volume: Weak<Volume>,
    /// Its rights may end before it.
    caller: Option<Caller>,
    context: Context,
    ticks: Interval,
    /// It ends before it is longer than this.
    limit_bytes: u64,
    sent_bytes: u64,
    encoder: FrameEncoder,
    requests: u64,
    /// Requests in frames that were sealed.
    sealed: u64,
    last_ns: u64,
    is_over: bool,
}

impl Recording {
    /// The notes since the last time, as frames.
    fn frames(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        for noted in self.tap.take() {
            if !self.has_room(&out) {
                self.is_over = true;
                break;
            }
            match noted {
                Noted::Request(request) => {
                    if !self.encoder.has_room() {
                        self.seal(&mut out);
                    }
                    self.encoder.push_request(&request);
                    self.requests += 1;
                    self.last_ns = request.time_ns;
                }
                Noted::Lost(mut count) => {
                    self.seal(&mut out);
                    while count > 0 {
                        let part = u32::try_from(count).unwrap_or(u32::MAX);
                        out.extend(FrameEncoder::lost(part, self.requests, self.last_ns));
                        count -= u64::from(part);
                    }
                }
            }
        }
        self.seal(&mut out);
        out
    }

    /// Whether another request, and the end, are within the limit.
    fn has_room(&self, out: &[u8]) -> bool {
        let bytes = out.len() + self.encoder.len_bytes();
        self.sent_bytes + bytes as u64 + ROOM_BYTES <= self.limit_bytes
    }

    fn seal(&mut self, out: &mut Vec<u8>) {
        if !self.encoder.is_empty() {
            out.extend_from_slice(self.encoder.requests(self.sealed));
            self.sealed = self.requests;
            self.encoder.clear();
        }
    }

    /// Whether its time is over, its caller may no more, the volume is gone, or the server stops.
    fn has_ended(&self) -> bool {
        let may = |name: &str| {
            let caller = self.caller.as_ref();
            caller.is_some_and(|caller| !caller.is_revoked() && caller.sees(name))
        };
        let volume = self.volume.upgrade();
        let is_there = volume.is_some_and(|volume| volume.is_served() && may(volume.name()));
        self.tap.is_over() || !is_there || !self.context.is_ready()
    }

    fn send(&mut self, bytes: Vec<u8>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sent_bytes += bytes.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }
}

impl Body for Recording {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return self.send(first);
        }
        loop {
            if self.is_over {
                return Poll::Ready(None);
            }
            ready!(self.ticks.poll_tick(cx));
            self.is_over = self.has_ended();
            let mut bytes = self.frames();
            if self.is_over {
                bytes.extend(FrameEncoder::end(self.requests, self.last_ns));
            }
            if !bytes.is_empty() {
                return self.send(bytes);
            }
        }
    }
}
