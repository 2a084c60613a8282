//! The requests that are seldom made and always jobs: CACHE, BLOCK_STATUS, RESIZE.

use std::sync::Arc;

use units::Role;
use wire::nbd::limits::META_CONTEXTS_MAX;
use wire::nbd::{Errno, Request, decode, encode};

use super::super::answer::fail;
use super::super::asked::{WriteRequest, kind};
use super::super::check;
use super::super::contexts::{self, MetaContext};
use super::{Step, Turn};
use crate::buffers::Purpose;
use crate::serving::{Counts, Group, Kind};

/// Most bytes that CACHE reads, and how many at a time.
const CACHE_BYTES_MAX: u64 = 32 << 20;
const CACHE_STEP_BYTES: u64 = 256 << 10;

impl Turn<'_> {
    pub(super) fn cache(&mut self, request: &Request, header: usize) -> Step {
        if !self.jobs.has_room(CACHE_STEP_BYTES) {
            return Step::Wait;
        }
        let step = request.length_bytes.min(CACHE_STEP_BYTES) as usize;
        let Some(mut buffer) = self.taker.take(Purpose::Read, request.offset, step) else {
            return Step::Wait;
        };
        let (export, style, request) = (Arc::clone(self.export), self.style, *request);
        self.start(Kind::Look, CACHE_STEP_BYTES, Counts::one(kind(&request)), move |out| {
            let end = request.offset + request.length_bytes.min(CACHE_BYTES_MAX);
            let buffer = buffer.unfilled(0);
            let mut offset = request.offset;
            while offset < end {
                let part = (end - offset).min(CACHE_STEP_BYTES);
                if let Err(error) = export.read(offset, &mut buffer[..part as usize]) {
                    return fail(style, &request, &error, &mut out.words);
                }
                offset += part;
            }
            out.done.extend_from_slice(encode::done(style, &request).as_bytes());
            0
        });
        Step::Next(header)
    }

    pub(super) fn status(
        &mut self,
        request: Request,
        header: usize,
        payload: u64,
        bytes: &[u8],
        group: &mut Group<'_, WriteRequest>,
    ) -> Step {
        let all: Vec<u32> = self.contexts.iter().map(|c| c.id).collect();
        let (length, ids, consumed) = if payload == 0 {
            (request.length_bytes, all, header)
        } else {
            if payload > 8 + 4 * META_CONTEXTS_MAX as u64 {
                return self.refuse(&request, header, (Errno::Invalid, "too long a payload"));
            }
            let end = header + payload as usize;
            let Some(payload) = bytes.get(header..end) else { return Step::Wait };
            match chosen_contexts(payload, &all) {
                Some((length, ids)) => (length, ids, end),
                None => {
                    return self.refuse(&request, header, (Errno::Invalid, "unknown contexts"));
                }
            }
        };
        if let Err(refusal) = check::check_status_range(request.offset, length, &self.facts) {
            return self.refuse(&request, header, refusal);
        }
        if self.jobs.is_full() {
            return Step::Wait;
        }
        if !self.write(group) {
            return Step::Wait;
        }
        // As much of the answer as one buffer holds, which every connection can have; the client
        // asks again for the rest. It counts as any other request's data does.
        let (limit, reply_bytes) = contexts::limit(self.style, &request, length, ids.len());
        let Some(mut buffer) = self.taker.take(Purpose::Read, 0, reply_bytes) else {
            return Step::Wait;
        };
        let (export, style) = (Arc::clone(self.export), self.style);
        let contexts = Arc::clone(self.contexts);
        self.start(Kind::Look, reply_bytes as u64, Counts::one(kind(&request)), move |out| {
            let wanted: Vec<&MetaContext> =
                contexts.iter().filter(|c| ids.contains(&c.id)).collect();
            let mut reply = Vec::with_capacity(reply_bytes);
            let ask = (&request, length, limit);
            match contexts::answer(&*export, &wanted, style, ask, &mut reply) {
                Ok(()) => {
                    buffer.hold(&reply);
                    out.data = Some(buffer);
                    0
                }
                Err(error) => fail(style, &request, &error, &mut out.words),
            }
        });
        Step::Next(consumed)
    }

    pub(super) fn resize(
        &mut self,
        request: Request,
        header: usize,
        group: &mut Group<'_, WriteRequest>,
    ) -> Step {
        if self.jobs.is_full() {
            return Step::Wait;
        }
        if !self.write(group) {
            return Step::Wait;
        }
        let (export, style) = (Arc::clone(self.export), self.style);
        let attachments = Arc::clone(self.attachments);
        let may_shrink = self.caller.may(Role::Admin) && self.caller.may_take(self.access);
        let (goes_on, caller) = (self.jobs.goes_on(), self.caller.clone());
        self.start(Kind::Resize, 0, Counts::one(kind(&request)), move |out| {
            if !goes_on() {
                return 0;
            }
            // Now and not before: it may have waited, and others come meanwhile.
            let is_smaller = request.offset < export.size_bytes();
            if is_smaller && !may_shrink {
                let message = "to make it smaller needs the role admin, and perhaps a unix socket";
                encode::error(style, &request, Errno::Perm, message, &mut out.words);
                return 1;
            }
            let volume = export.present_of().filter(|_| is_smaller);
            let alone = volume.and_then(|volume| attachments.keep_others_away(volume));
            if volume.is_some() && alone.is_none() {
                let message = "other clients are attached";
                encode::error(style, &request, Errno::Perm, message, &mut out.words);
                return 1;
            }
            let from = caller.from.as_deref();
            let resize = || export.resize(request.offset, !is_smaller);
            match volume::on_behalf_of(&caller.who, from, resize) {
                Ok(()) => {
                    out.done.extend_from_slice(encode::done(style, &request).as_bytes());
                    0
                }
                Err(error) => fail(style, &request, &error, &mut out.words),
            }
        });
        Step::Next(header)
    }
}

/// The contexts that a BLOCK_STATUS payload asks about; `None` when it names one twice, or none of
/// `all`.
fn chosen_contexts(payload: &[u8], all: &[u32]) -> Option<(u64, Vec<u32>)> {
    let (length, ids) = decode::status_payload(payload)?;
    let is_known = |(index, id): (usize, &u32)| all.contains(id) && !ids[..index].contains(id);
    if ids.iter().enumerate().all(is_known) { Some((length, ids)) } else { None }
}
