//! Everything but commands: signs of life, texts, task management, logout.

use std::collections::BTreeSet;

use wire::iscsi::frame::Pdu;
use wire::iscsi::negotiation::Answer;
use wire::iscsi::text::{self, SendTargets};
use wire::iscsi::{
    LogoutReason, LogoutResponse, LogoutResult, NopOut, Numbers, RejectReason, Tag, TaskFunction,
    TaskRequest, TaskResponse, TaskResult, TextRequest, TextResponse, names,
};
use wire::scsi::{Code, Lun};

use super::super::answer::Ended;
use super::super::asked::Write;
use super::super::core::Core;
use super::super::disks::Disk;
use super::super::targets::{Listing, may_know};
use super::super::task::{Function, FunctionEnd};
use super::super::unit::Aborted;
use super::Step;
use crate::serving::Group;

/// Functions of a session that are under way, at most.
const FUNCTIONS_MAX: usize = 16;

impl Core {
    pub(super) fn nop_out(&mut self, nop: &NopOut, data: &[u8]) {
        // One without a tag answers a question of ours: that it was heard is enough.
        if nop.task_tag != Tag::NONE {
            let length = data.len().min(self.sender.segment_bytes());
            self.sender.nop_in(nop.lun, nop.task_tag, Tag::NONE, &data[..length]);
        }
    }

    /// Ends tasks. Those that have not begun are forgotten; others are awaited, and only then the
    /// function has been carried out.
    pub(super) fn manage(&mut self, request: &TaskRequest, group: &mut Group<'_, Write>) -> Step {
        if !self.write(group) {
            return Step::Wait;
        }
        let tag = request.task_tag;
        let nothing = Numbers::default();
        let response = |result| TaskResponse { result, task_tag: tag, numbers: nothing };
        if let Some(refusal) = self.refuses(request) {
            self.sender.task_response(&response(refusal));
            return Step::Done;
        }
        let is_for_all = is_for_all(request.function);
        let disk = self.disks.at(request.lun);
        let unit = request.lun.number().filter(|_| !is_for_all);
        let mut tags = self.tasks.of(unit);
        let others = match request.function {
            TaskFunction::ABORT_TASK => {
                // That of another unit is none here; of one that is not known the answer may be on
                // its way.
                let wanted = request.referenced_tag;
                let is_elsewhere = self.tasks.all.contains_key(&wanted) && !tags.contains(&wanted);
                tags = if is_elsewhere { Vec::new() } else { vec![wanted] };
                None
            }
            TaskFunction::ABORT_TASK_SET => None,
            TaskFunction::CLEAR_TASK_SET => disk.map(|disk| {
                disk.nexus.tell_others(Code::COMMANDS_CLEARED);
                disk.nexus.abort_others()
            }),
            TaskFunction::LUN_RESET => disk.map(|disk| {
                disk.nexus.reset(Code::DEVICE_RESET);
                disk.nexus.abort_others()
            }),
            TaskFunction::TARGET_WARM_RESET | TaskFunction::TARGET_COLD_RESET => {
                Some(self.reset_all())
            }
            _ => {
                self.sender.task_response(&response(TaskResult::NOT_SUPPORTED));
                return Step::Done;
            }
        };
        // One that is not known was answered, or never came.
        let is_single = request.function == TaskFunction::ABORT_TASK;
        if !is_single {
            // Answers that were not sent yet are not wanted either.
            self.sender.stop_sending_of(unit);
        }
        let is_known = self.abort(&tags);
        let result = match is_single && is_known.is_none() {
            true => TaskResult::NO_TASK,
            false => TaskResult::COMPLETE,
        };
        self.tasks.functions.push(Function {
            end: FunctionEnd::Response(response(result)),
            waits_for: is_known.unwrap_or_default(),
            waits_for_others: others.is_some(),
        });
        self.awaited.extend(others.map(|others| (tag, others)));
        self.settle(|_| {});
        Step::Done
    }

    /// Why a function is not begun.
    fn refuses(&self, request: &TaskRequest) -> Option<TaskResult> {
        // Each is remembered until what it ends has ended. A tag is one command's or function's.
        let is_known = self.tasks.has(request.task_tag);
        if is_known || self.tasks.functions.len() >= FUNCTIONS_MAX {
            return Some(TaskResult::REJECTED);
        }
        let is_for_all = is_for_all(request.function);
        // Of one that was taken away the session ends its own tasks, and nothing of others.
        let is_of_others =
            matches!(request.function, TaskFunction::CLEAR_TASK_SET | TaskFunction::LUN_RESET);
        let mut disks = self.disks.at(request.lun).into_iter();
        if !is_for_all && !disks.any(|disk| disk.is_there() || !is_of_others) {
            return Some(TaskResult::NO_LUN);
        }
        let is_of_all = is_for_all || is_of_others;
        (is_of_all && self.disks.is_reader()).then_some(TaskResult::NOT_AUTHORIZED)
    }

    /// Aborts tasks; those that are under way and have to be awaited, none if no task is known.
    fn abort(&mut self, tags: &[Tag]) -> Option<BTreeSet<Tag>> {
        let mut waits_for = None;
        for &tag in tags {
            if self.sender.stop_sending(tag) {
                waits_for.get_or_insert_with(BTreeSet::new);
            }
            let Some(task) = self.tasks.all.get_mut(&tag) else { continue };
            task.is_aborted = true;
            let waits = waits_for.get_or_insert_with(BTreeSet::new);
            // One that awaits others has done its own part, and those may await it.
            let awaits_others = self.awaited.iter().any(|(other, _)| *other == tag);
            match task.incoming.is_some() || awaits_others {
                true => {
                    self.awaited.retain(|(other, _)| *other != tag);
                    self.ended(tag, Ended::Good);
                }
                false => {
                    waits.insert(tag);
                }
            }
        }
        waits_for
    }

    /// Resets all units that are there; ready when nothing of other sessions is under way on them.
    fn reset_all(&self) -> Aborted {
        let reset = |disk: &Disk| {
            disk.nexus.reset(Code::BUS_RESET);
            disk.nexus.abort_others()
        };
        let there = self.disks.iter().filter(|disk| disk.is_there());
        let others: Vec<Aborted> = there.map(reset).collect();
        Box::pin(async move {
            for other in others {
                other.await;
            }
        })
    }

    /// Another session has all tasks of a unit aborted; the number of that time.
    pub(in super::super) fn abort_all(&mut self, unit: u16, number: u64) {
        let tags = self.tasks.of(Some(unit));
        self.sender.stop_sending_of(Some(unit));
        let waits_for = self.abort(&tags).unwrap_or_default();
        let end = FunctionEnd::Told(unit, number);
        self.tasks.functions.push(Function { end, waits_for, waits_for_others: false });
        self.settle(|_| {});
    }

    /// Other sessions have ended what was aborted of theirs.
    pub(in super::super) fn others_ended(&mut self, tag: Tag) {
        // A command that had it done, or a function.
        if self.tasks.all.contains_key(&tag) {
            return self.ended(tag, Ended::Good);
        }
        self.settle(|function| {
            if matches!(function.end, FunctionEnd::Response(response) if response.task_tag == tag) {
                function.waits_for_others = false;
            }
        });
    }

    /// Ends the functions that wait for nothing any more.
    pub(super) fn settle(&mut self, settle: impl Fn(&mut Function)) {
        for end in self.tasks.settled(settle) {
            match end {
                FunctionEnd::Response(response) => self.sender.task_response(&response),
                FunctionEnd::Told(unit, number) => {
                    // A unit that was let go of meanwhile has told so.
                    if let Some(disk) = self.disks.at(Lun::from_number(unit)) {
                        disk.nexus.aborted(number);
                    }
                    self.let_go_idle(unit);
                }
            }
        }
    }

    /// Answers a logout once nothing is under way; whether it did.
    pub(in super::super) fn log_out(&mut self) -> bool {
        let Some(logout) = self.logout else { return false };
        let is_waiting = self.tasks.all.values().any(|task| task.incoming.is_none());
        if is_waiting || self.sender.has_reads() {
            return false;
        }
        self.logout = None;
        let result = match logout.reason {
            LogoutReason::CLOSE_SESSION | LogoutReason::CLOSE_CONNECTION => LogoutResult::CLOSED,
            _ => LogoutResult::NO_RECOVERY,
        };
        self.sender.logout_response(&LogoutResponse {
            result,
            task_tag: logout.task_tag,
            numbers: Numbers::default(),
            time_to_wait_s: self.parameters.time_to_wait_s,
            time_to_retain_s: 0,
        });
        result == LogoutResult::CLOSED
    }

    pub(super) fn text(&mut self, request: &TextRequest, pdu: &Pdu<'_>) {
        // The rest of an answer is asked for by a request without text.
        let goes_on = !self.text.is_empty() || self.listing.is_some();
        if request.transfer_tag != Tag::NONE && pdu.data.is_empty() && goes_on {
            return self.send_text(request);
        }
        self.text.clear();
        self.listing = None;
        if request.continues || request.transfer_tag != Tag::NONE {
            // No question is as long as that.
            return self.reject(RejectReason::NOT_SUPPORTED, pdu);
        }
        let Ok(pairs) = text::parse(pdu.data) else {
            return self.reject(RejectReason::PROTOCOL_ERROR, pdu);
        };
        self.negotiation.begin_text();
        let mut out = Vec::new();
        for pair in &pairs {
            match self.negotiation.answer(pair) {
                Ok(Answer::Question) => self.name_targets(&SendTargets::of(pair.value), &mut out),
                Ok(answer) => answer.put(pair.key, &mut out),
                Err(_) => return self.reject(RejectReason::PROTOCOL_ERROR, pdu),
            }
        }
        self.sender.set_segment_bytes(self.negotiation.parameters().send_segment_bytes);
        self.text = out;
        self.send_text(request);
    }

    /// Sends as much of the text as the initiator takes at once.
    fn send_text(&mut self, request: &TextRequest) {
        self.go_on_listing();
        let length = self.text.len().min(self.sender.segment_bytes());
        let rest = self.text.split_off(length);
        let part = std::mem::replace(&mut self.text, rest);
        let is_last = self.text.is_empty() && self.listing.is_none();
        let transfer_tag = if is_last { Tag::NONE } else { self.next_transfer() };
        let response = TextResponse {
            is_final: is_last && request.is_final,
            continues: !is_last,
            lun: request.lun,
            task_tag: request.task_tag,
            transfer_tag,
            numbers: Numbers::default(),
        };
        self.sender.text_response(&response, &part);
    }

    /// Makes the next part of a list of all targets.
    fn go_on_listing(&mut self) {
        let addresses = self.announced();
        let (Some(asker), Some(listing)) = (&self.asker, &mut self.listing) else { return };
        let portals: Vec<(&str, u16)> = addresses.iter().map(|a| (a.as_str(), 1)).collect();
        // One more byte than is sent: the last part is known to be that.
        let bytes = self.sender.segment_bytes() + 1;
        listing.put((&self.context, asker), &portals, bytes, &mut self.text);
        if listing.is_over() {
            self.listing = None;
        }
    }

    /// Where initiators are told that targets are: where this one found us, unless they are to be
    /// told something else.
    fn announced(&self) -> Vec<String> {
        match self.context.announced.is_empty() {
            true => self.address.iter().map(ToString::to_string).collect(),
            false => self.context.announced.clone(),
        }
    }

    fn name_targets(&mut self, question: &SendTargets<'_>, out: &mut Vec<u8>) {
        let addresses = self.announced();
        let portals: Vec<(&str, u16)> = addresses.iter().map(|a| (a.as_str(), 1)).collect();
        let own = self.target.as_deref();
        match question {
            // It is made when it is sent.
            SendTargets::All if own.is_none() => self.listing = Some(Listing::begin()),
            SendTargets::All => text::put("SendTargets", "Reject", out),
            SendTargets::This => {
                if let Some(own) = own {
                    text::put_target(own, &portals, out);
                }
            }
            SendTargets::Named(name) if names::fold(name).is_err() => {
                text::put("SendTargets", "Reject", out);
            }
            SendTargets::Named(name) => {
                let asker = self.asker.as_ref();
                let is_known = own == Some(*name)
                    || asker.is_some_and(|asker| may_know(&self.context, asker, name));
                if is_known {
                    text::put_target(name, &portals, out);
                }
            }
        }
    }
}

/// Whether a function is for the whole target.
fn is_for_all(function: TaskFunction) -> bool {
    matches!(function, TaskFunction::TARGET_WARM_RESET | TaskFunction::TARGET_COLD_RESET)
}
