//! Everything but commands: signs of life, texts, task management, logout.

use wire::iscsi::frame::Pdu;
use wire::iscsi::negotiation::Answer;
use wire::iscsi::text::{self, SendTargets};
use wire::iscsi::{
    LogoutReason, LogoutResponse, LogoutResult, NopOut, Numbers, RejectReason, Tag, TaskFunction,
    TaskRequest, TaskResponse, TaskResult, TextRequest, TextResponse,
};
use wire::scsi::Code;

use super::super::asked::Write;
use super::super::check::UNIT;
use super::super::session::Core;
use super::super::task::Function;
use super::Step;
use crate::serving::Group;

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
        if request.lun.number() != UNIT.number() && !is_for_all(request.function) {
            self.sender.task_response(&response(TaskResult::NO_LUN));
            return Step::Done;
        }
        let disk = self.disk();
        let tags: Vec<Tag> = match request.function {
            TaskFunction::ABORT_TASK => vec![request.referenced_tag],
            TaskFunction::ABORT_TASK_SET => self.tasks.all.keys().copied().collect(),
            TaskFunction::CLEAR_TASK_SET => {
                disk.nexus.tell_others(Code::COMMANDS_CLEARED);
                self.tasks.all.keys().copied().collect()
            }
            TaskFunction::LUN_RESET
            | TaskFunction::TARGET_WARM_RESET
            | TaskFunction::TARGET_COLD_RESET => {
                disk.nexus.reset(match request.function {
                    TaskFunction::LUN_RESET => Code::DEVICE_RESET,
                    _ => Code::BUS_RESET,
                });
                self.tasks.all.keys().copied().collect()
            }
            _ => {
                self.sender.task_response(&response(TaskResult::NOT_SUPPORTED));
                return Step::Done;
            }
        };
        let is_single = request.function == TaskFunction::ABORT_TASK;
        let mut function =
            Function { response: response(TaskResult::COMPLETE), waits_for: Default::default() };
        for tag in tags {
            let was_sending = self.sender.stop_sending(tag);
            match self.tasks.all.get_mut(&tag) {
                Some(task) if task.incoming.is_some() => {
                    task.is_aborted = true;
                    self.ended(tag, super::Ended::Good);
                }
                Some(task) => {
                    task.is_aborted = true;
                    function.waits_for.insert(tag);
                }
                // One that is not known was answered, or never came.
                None if is_single && !was_sending => {
                    function.response.result = TaskResult::NO_TASK;
                }
                None => {}
            }
        }
        match function.waits_for.is_empty() {
            true => self.sender.task_response(&function.response),
            false => self.tasks.functions.push(function),
        }
        Step::Done
    }

    /// Answers a logout once nothing is under way; whether it did.
    pub(in super::super) fn log_out(&mut self) -> bool {
        let Some(logout) = self.logout else { return false };
        let is_waiting = self.tasks.all.values().any(|task| task.incoming.is_none());
        if is_waiting {
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
        if request.transfer_tag != Tag::NONE && pdu.data.is_empty() && !self.text.is_empty() {
            return self.send_text(request);
        }
        self.text.clear();
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
        let length = self.text.len().min(self.sender.segment_bytes());
        let rest = self.text.split_off(length);
        let part = std::mem::replace(&mut self.text, rest);
        let is_last = self.text.is_empty();
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

    fn name_targets(&self, question: &SendTargets<'_>, out: &mut Vec<u8>) {
        let address = self.address.map(|address| address.to_string());
        let portals: Vec<(&str, u16)> = address.iter().map(|a| (a.as_str(), 1)).collect();
        let own = self.disk.as_ref().map(|disk| disk.identity.target.as_str());
        match question {
            SendTargets::All if own.is_none() => {
                for name in &self.presents {
                    text::put_target(name, &portals, out);
                }
            }
            SendTargets::All => text::put("SendTargets", "Reject", out),
            SendTargets::This => {
                if let Some(own) = own {
                    text::put_target(own, &portals, out);
                }
            }
            SendTargets::Named(name) => {
                let is_known = own == Some(*name) || self.presents.iter().any(|p| p == name);
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
