//! PDUs of an initiator.

use super::types::{Isid, Serial, Stage, Tag};
use crate::scsi::Lun;

/// A decoded header of an initiator's PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A sign of life, or the answer to one.
    NopOut(NopOut),
    /// A SCSI command.
    Command(CommandRequest),
    /// A task management function.
    Task(TaskRequest),
    /// A step of the login.
    Login(LoginRequest),
    /// Text in the full feature phase.
    Text(TextRequest),
    /// Data of a write.
    DataOut(DataOut),
    /// The end of the connection.
    Logout(LogoutRequest),
    /// A request to send something again.
    Snack(SnackRequest),
}

impl Request {
    /// The initiator's task tag.
    #[must_use]
    pub const fn task_tag(&self) -> Tag {
        match self {
            Request::NopOut(pdu) => pdu.task_tag,
            Request::Command(pdu) => pdu.task_tag,
            Request::Task(pdu) => pdu.task_tag,
            Request::Login(pdu) => pdu.task_tag,
            Request::Text(pdu) => pdu.task_tag,
            Request::DataOut(pdu) => pdu.task_tag,
            Request::Logout(pdu) => pdu.task_tag,
            Request::Snack(pdu) => pdu.task_tag,
        }
    }

    /// CmdSN, and whether the request is immediate; none of Data-Out and SNACK, which have none.
    #[must_use]
    pub const fn command_number(&self) -> Option<(Serial, bool)> {
        match self {
            Request::NopOut(pdu) => Some((pdu.cmd_sn, pdu.immediate)),
            Request::Command(pdu) => Some((pdu.cmd_sn, pdu.immediate)),
            Request::Task(pdu) => Some((pdu.cmd_sn, pdu.immediate)),
            Request::Login(pdu) => Some((pdu.cmd_sn, true)),
            Request::Text(pdu) => Some((pdu.cmd_sn, pdu.immediate)),
            Request::Logout(pdu) => Some((pdu.cmd_sn, pdu.immediate)),
            Request::DataOut(_) | Request::Snack(_) => None,
        }
    }

    /// ExpStatSN: every status before it has arrived.
    #[must_use]
    pub const fn exp_stat_sn(&self) -> Serial {
        match self {
            Request::NopOut(pdu) => pdu.exp_stat_sn,
            Request::Command(pdu) => pdu.exp_stat_sn,
            Request::Task(pdu) => pdu.exp_stat_sn,
            Request::Login(pdu) => pdu.exp_stat_sn,
            Request::Text(pdu) => pdu.exp_stat_sn,
            Request::DataOut(pdu) => pdu.exp_stat_sn,
            Request::Logout(pdu) => pdu.exp_stat_sn,
            Request::Snack(pdu) => pdu.exp_stat_sn,
        }
    }
}

/// NOP-Out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopOut {
    /// Outside the order of CmdSN.
    pub immediate: bool,
    /// Echoed from a NOP-In.
    pub lun: Lun,
    /// `Tag::NONE` when no answer is wanted.
    pub task_tag: Tag,
    /// That of the NOP-In which this answers, or `Tag::NONE`.
    pub transfer_tag: Tag,
    /// CmdSN.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
}

/// How a task stands to the others of its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskAttribute {
    /// Not named: as `Simple`.
    Untagged,
    /// In any order.
    Simple,
    /// After all before it, before all after it.
    Ordered,
    /// At once.
    HeadOfQueue,
    /// Of an auto contingent allegiance; there is none here.
    Aca,
}

impl TaskAttribute {
    /// The attribute of a number; 5 to 7 are none.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<TaskAttribute> {
        match number {
            0 => Some(TaskAttribute::Untagged),
            1 => Some(TaskAttribute::Simple),
            2 => Some(TaskAttribute::Ordered),
            3 => Some(TaskAttribute::HeadOfQueue),
            4 => Some(TaskAttribute::Aca),
            _ => None,
        }
    }

    /// Its number in a header.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            TaskAttribute::Untagged => 0,
            TaskAttribute::Simple => 1,
            TaskAttribute::Ordered => 2,
            TaskAttribute::HeadOfQueue => 3,
            TaskAttribute::Aca => 4,
        }
    }
}

/// SCSI Command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandRequest {
    /// Outside the order of CmdSN.
    pub immediate: bool,
    /// F: no unsolicited Data-Out follows.
    pub is_final: bool,
    /// R: the command reads.
    pub reads: bool,
    /// W: the command writes.
    pub writes: bool,
    /// How it stands to other tasks.
    pub attribute: TaskAttribute,
    /// The unit.
    pub lun: Lun,
    /// The initiator's name for the task.
    pub task_tag: Tag,
    /// Bytes the initiator will send or take.
    pub expected_bytes: u32,
    /// CmdSN.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
    /// The command; shorter ones are padded with zeros.
    pub cdb: [u8; 16],
}

/// Number of a task management function; any number can arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskFunction(pub u8);

impl TaskFunction {
    /// One task.
    pub const ABORT_TASK: TaskFunction = TaskFunction(1);
    /// All tasks of this session on the unit.
    pub const ABORT_TASK_SET: TaskFunction = TaskFunction(2);
    /// Not supported.
    pub const CLEAR_ACA: TaskFunction = TaskFunction(3);
    /// All tasks on the unit.
    pub const CLEAR_TASK_SET: TaskFunction = TaskFunction(4);
    /// Reset of the unit.
    pub const LUN_RESET: TaskFunction = TaskFunction(5);
    /// Reset of all units of the target.
    pub const TARGET_WARM_RESET: TaskFunction = TaskFunction(6);
    /// The same, and the sessions end.
    pub const TARGET_COLD_RESET: TaskFunction = TaskFunction(7);
    /// Not supported.
    pub const TASK_REASSIGN: TaskFunction = TaskFunction(8);
}

/// Task Management Function Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRequest {
    /// Outside the order of CmdSN.
    pub immediate: bool,
    /// The function.
    pub function: TaskFunction,
    /// The unit.
    pub lun: Lun,
    /// The initiator's name for this request.
    pub task_tag: Tag,
    /// ABORT TASK: the task's name.
    pub referenced_tag: Tag,
    /// CmdSN.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
    /// ABORT TASK: CmdSN of the task.
    pub ref_cmd_sn: Serial,
    /// TASK REASSIGN: the next data that is expected.
    pub exp_data_sn: Serial,
}

/// Login Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// C: the text goes on in the next request.
    pub continues: bool,
    /// The stage.
    pub stage: Stage,
    /// T: the stage that the initiator is ready for; a later one.
    pub next: Option<Stage>,
    /// Highest version it speaks.
    pub version_max: u8,
    /// Lowest version it speaks; 0 is the only one there is.
    pub version_min: u8,
    /// The initiator's part of the session's identity.
    pub isid: Isid,
    /// The target's part; 0 for a new session.
    pub tsih: u16,
    /// The same in all requests of a login.
    pub task_tag: Tag,
    /// The connection in the session.
    pub cid: u16,
    /// CmdSN of the session's first command.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
}

/// Text Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRequest {
    /// Outside the order of CmdSN.
    pub immediate: bool,
    /// F: the initiator has no more to say.
    pub is_final: bool,
    /// C: the text goes on in the next request.
    pub continues: bool,
    /// Echoed from a response.
    pub lun: Lun,
    /// The same in all requests of an exchange.
    pub task_tag: Tag,
    /// `Tag::NONE` to begin, else that of the last response.
    pub transfer_tag: Tag,
    /// CmdSN.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
}

/// SCSI Data-Out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOut {
    /// F: the last of its sequence.
    pub is_final: bool,
    /// Echoed from the R2T.
    pub lun: Lun,
    /// The task.
    pub task_tag: Tag,
    /// That of the R2T, or `Tag::NONE` when unsolicited.
    pub transfer_tag: Tag,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
    /// Number in its sequence, from 0.
    pub data_sn: u32,
    /// Place in the task's data, in bytes.
    pub offset: u32,
}

/// Why an initiator logs out; any number can arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutReason(pub u8);

impl LogoutReason {
    /// The session ends.
    pub const CLOSE_SESSION: LogoutReason = LogoutReason(0);
    /// The connection ends.
    pub const CLOSE_CONNECTION: LogoutReason = LogoutReason(1);
    /// The connection is to be recovered; level 0 has no such thing.
    pub const RECOVERY: LogoutReason = LogoutReason(2);
}

/// Logout Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutRequest {
    /// Outside the order of CmdSN.
    pub immediate: bool,
    /// Why.
    pub reason: LogoutReason,
    /// The initiator's name for this request.
    pub task_tag: Tag,
    /// The connection.
    pub cid: u16,
    /// CmdSN.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
}

/// SNACK Request: level 0 refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnackRequest {
    /// Its type, 0 to 3.
    pub kind: u8,
    /// The unit.
    pub lun: Lun,
    /// The task.
    pub task_tag: Tag,
    /// That of the R2T, or the SNACK's own.
    pub transfer_tag: Tag,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
    /// First number asked for.
    pub begin: u32,
    /// How many; 0 is all.
    pub run: u32,
}
