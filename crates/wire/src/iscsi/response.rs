//! PDUs of a target.

use super::types::{Isid, Numbers, Stage, Tag};
use crate::scsi::{Lun, Status};

/// A decoded header of a target's PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// A sign of life, or the answer to one.
    NopIn(NopIn),
    /// The end of a SCSI command.
    Command(CommandResponse),
    /// The end of a task management function.
    Task(TaskResponse),
    /// A step of the login.
    Login(LoginResponse),
    /// Text in the full feature phase.
    Text(TextResponse),
    /// Data of a read.
    DataIn(DataIn),
    /// The end of the connection.
    Logout(LogoutResponse),
    /// A request for data of a write.
    ReadyToTransfer(ReadyToTransfer),
    /// News.
    Async(AsyncMessage),
    /// A PDU that could not be used; its header is the data.
    Reject(Reject),
}

/// NOP-In.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopIn {
    /// To be echoed.
    pub lun: Lun,
    /// That of the NOP-Out which this answers, or `Tag::NONE`.
    pub task_tag: Tag,
    /// `Tag::NONE` when no answer is wanted.
    pub transfer_tag: Tag,
    /// Serial numbers.
    pub numbers: Numbers,
}

/// How far the bytes that were moved differ from those that were expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// Not at all.
    #[default]
    None,
    /// So many bytes fewer were moved.
    Underflow(u32),
    /// So many bytes more would have been moved.
    Overflow(u32),
}

impl Residual {
    /// Of a command that has `actual` bytes to move where the initiator expects `expected`.
    #[must_use]
    pub fn between(expected: u32, actual: u64) -> Residual {
        let clipped = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        match actual.cmp(&u64::from(expected)) {
            std::cmp::Ordering::Equal => Residual::None,
            std::cmp::Ordering::Less => Residual::Underflow(clipped(u64::from(expected) - actual)),
            std::cmp::Ordering::Greater => {
                Residual::Overflow(clipped(actual - u64::from(expected)))
            }
        }
    }

    pub(super) const fn parts(self) -> (bool, bool, u32) {
        match self {
            Residual::None => (false, false, 0),
            Residual::Underflow(count) => (false, true, count),
            Residual::Overflow(count) => (true, false, count),
        }
    }
}

/// SCSI Response. Its data is the sense data with its length
/// ([`encode::sense_segment`](super::encode::sense_segment)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandResponse {
    /// 0: the command was completed; 1: the target failed; else it is a vendor's.
    pub response: u8,
    /// The status, if the command was completed.
    pub status: Status,
    /// The task.
    pub task_tag: Tag,
    /// Serial numbers.
    pub numbers: Numbers,
    /// Number of R2T and Data-In PDUs that were sent for it.
    pub exp_data_sn: u32,
    /// Of the transfer.
    pub residual: Residual,
}

impl CommandResponse {
    /// `response`: completed.
    pub const COMPLETED: u8 = 0;
    /// `response`: the target failed.
    pub const TARGET_FAILURE: u8 = 1;
}

/// Result of a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskResult(pub u8);

impl TaskResult {
    /// Function complete.
    pub const COMPLETE: TaskResult = TaskResult(0);
    /// There is no such task.
    pub const NO_TASK: TaskResult = TaskResult(1);
    /// There is no such unit.
    pub const NO_LUN: TaskResult = TaskResult(2);
    /// The task still belongs to a connection.
    pub const STILL_ALLEGIANT: TaskResult = TaskResult(3);
    /// No reassignment of tasks.
    pub const NO_REASSIGNMENT: TaskResult = TaskResult(4);
    /// Not supported.
    pub const NOT_SUPPORTED: TaskResult = TaskResult(5);
    /// Not allowed.
    pub const NOT_AUTHORIZED: TaskResult = TaskResult(6);
    /// Refused for another reason.
    pub const REJECTED: TaskResult = TaskResult(255);
}

/// Task Management Function Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskResponse {
    /// The result.
    pub result: TaskResult,
    /// That of the request.
    pub task_tag: Tag,
    /// Serial numbers.
    pub numbers: Numbers,
}

/// Status of a login: class in the high byte, detail in the low one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginStatus(pub u16);

impl LoginStatus {
    /// It goes on, or has succeeded.
    pub const SUCCESS: LoginStatus = LoginStatus(0x0000);
    /// The target is elsewhere for now.
    pub const MOVED_TEMPORARILY: LoginStatus = LoginStatus(0x0101);
    /// The target is elsewhere for good.
    pub const MOVED_PERMANENTLY: LoginStatus = LoginStatus(0x0102);
    /// The initiator broke the protocol.
    pub const INITIATOR_ERROR: LoginStatus = LoginStatus(0x0200);
    /// Not the one it says it is.
    pub const AUTHENTICATION_FAILURE: LoginStatus = LoginStatus(0x0201);
    /// Not allowed to use this target.
    pub const AUTHORIZATION_FAILURE: LoginStatus = LoginStatus(0x0202);
    /// No such target.
    pub const NOT_FOUND: LoginStatus = LoginStatus(0x0203);
    /// The target was removed.
    pub const REMOVED: LoginStatus = LoginStatus(0x0204);
    /// No common version.
    pub const UNSUPPORTED_VERSION: LoginStatus = LoginStatus(0x0205);
    /// Too many connections in the session.
    pub const TOO_MANY_CONNECTIONS: LoginStatus = LoginStatus(0x0206);
    /// A key that is needed is missing.
    pub const MISSING_PARAMETER: LoginStatus = LoginStatus(0x0207);
    /// The connection cannot join the session.
    pub const CANNOT_INCLUDE: LoginStatus = LoginStatus(0x0208);
    /// No sessions of that type.
    pub const SESSION_TYPE: LoginStatus = LoginStatus(0x0209);
    /// No such session.
    pub const NO_SESSION: LoginStatus = LoginStatus(0x020a);
    /// That request cannot be made in a login.
    pub const INVALID_DURING_LOGIN: LoginStatus = LoginStatus(0x020b);
    /// The target failed.
    pub const TARGET_ERROR: LoginStatus = LoginStatus(0x0300);
    /// Not now.
    pub const SERVICE_UNAVAILABLE: LoginStatus = LoginStatus(0x0301);
    /// Limits are reached.
    pub const OUT_OF_RESOURCES: LoginStatus = LoginStatus(0x0302);

    /// Whether the login goes on.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 >> 8 == 0
    }
}

/// Login Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginResponse {
    /// C: the text goes on in the next response.
    pub continues: bool,
    /// The stage.
    pub stage: Stage,
    /// T: the stage that begins now.
    pub next: Option<Stage>,
    /// Highest version we speak.
    pub version_max: u8,
    /// The version in use.
    pub version_active: u8,
    /// That of the request.
    pub isid: Isid,
    /// 0 until the login has succeeded.
    pub tsih: u16,
    /// That of the request.
    pub task_tag: Tag,
    /// Serial numbers.
    pub numbers: Numbers,
    /// Status.
    pub status: LoginStatus,
}

/// Text Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextResponse {
    /// F: the exchange has ended.
    pub is_final: bool,
    /// C: the text goes on in the next response.
    pub continues: bool,
    /// To be echoed.
    pub lun: Lun,
    /// That of the request.
    pub task_tag: Tag,
    /// `Tag::NONE` at the end, else for the next request.
    pub transfer_tag: Tag,
    /// Serial numbers.
    pub numbers: Numbers,
}

/// The status that a last Data-In carries in place of a SCSI Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataInStatus {
    /// GOOD, or another one without sense data.
    pub status: Status,
    /// Of the transfer.
    pub residual: Residual,
}

/// SCSI Data-In.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataIn {
    /// F: the last of its sequence.
    pub is_final: bool,
    /// A: the initiator shall acknowledge; only above level 0.
    pub acknowledge: bool,
    /// S: the status of the command. StatSN counts only then.
    pub status: Option<DataInStatus>,
    /// The unit, if an acknowledgement is wanted.
    pub lun: Lun,
    /// The task.
    pub task_tag: Tag,
    /// `Tag::NONE` unless an acknowledgement is wanted.
    pub transfer_tag: Tag,
    /// Serial numbers; StatSN is 0 without a status.
    pub numbers: Numbers,
    /// Number in its task, from 0.
    pub data_sn: u32,
    /// Place in the task's data, in bytes.
    pub offset: u32,
}

/// Result of a logout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResult(pub u8);

impl LogoutResult {
    /// Done.
    pub const CLOSED: LogoutResult = LogoutResult(0);
    /// There is no such connection.
    pub const NO_CONNECTION: LogoutResult = LogoutResult(1);
    /// No recovery of connections.
    pub const NO_RECOVERY: LogoutResult = LogoutResult(2);
    /// It failed.
    pub const FAILED: LogoutResult = LogoutResult(3);
}

/// Logout Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResponse {
    /// The result.
    pub result: LogoutResult,
    /// That of the request.
    pub task_tag: Tag,
    /// Serial numbers.
    pub numbers: Numbers,
    /// Seconds to wait before a login.
    pub time_to_wait_s: u16,
    /// Seconds for which tasks are kept.
    pub time_to_retain_s: u16,
}

/// Ready To Transfer (R2T).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToTransfer {
    /// To be echoed.
    pub lun: Lun,
    /// The task.
    pub task_tag: Tag,
    /// For the data.
    pub transfer_tag: Tag,
    /// Serial numbers; StatSN does not advance.
    pub numbers: Numbers,
    /// Number in its task, from 0.
    pub r2t_sn: u32,
    /// Place in the task's data, in bytes.
    pub offset: u32,
    /// Bytes that are wanted; not 0.
    pub wanted_bytes: u32,
}

/// Number of an asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent(pub u8);

impl AsyncEvent {
    /// The data is sense data.
    pub const SCSI: AsyncEvent = AsyncEvent(0);
    /// The initiator shall log out within `parameters[2]` seconds.
    pub const REQUEST_LOGOUT: AsyncEvent = AsyncEvent(1);
    /// The connection `parameters[0]` will be dropped.
    pub const DROP_CONNECTION: AsyncEvent = AsyncEvent(2);
    /// All connections will be dropped.
    pub const DROP_SESSION: AsyncEvent = AsyncEvent(3);
    /// The initiator shall negotiate again within `parameters[2]` seconds.
    pub const NEGOTIATE: AsyncEvent = AsyncEvent(4);
    /// All tasks of the unit were ended.
    pub const TASKS_TERMINATED: AsyncEvent = AsyncEvent(5);
}

/// Asynchronous Message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMessage {
    /// The unit, for events of SCSI.
    pub lun: Lun,
    /// Serial numbers.
    pub numbers: Numbers,
    /// The event.
    pub event: AsyncEvent,
    /// A vendor's code.
    pub vendor_code: u8,
    /// Their meaning is the event's.
    pub parameters: [u16; 3],
}

/// Why a PDU is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectReason(pub u8);

impl RejectReason {
    /// The data digest is wrong.
    pub const DATA_DIGEST: RejectReason = RejectReason(2);
    /// No SNACK now.
    pub const SNACK: RejectReason = RejectReason(3);
    /// It breaks the protocol.
    pub const PROTOCOL_ERROR: RejectReason = RejectReason(4);
    /// No such request here.
    pub const NOT_SUPPORTED: RejectReason = RejectReason(5);
    /// Too many immediate commands.
    pub const TOO_MANY_IMMEDIATE: RejectReason = RejectReason(6);
    /// The task is under way.
    pub const TASK_IN_PROGRESS: RejectReason = RejectReason(7);
    /// An acknowledgement of data that was not sent.
    pub const INVALID_ACK: RejectReason = RejectReason(8);
    /// A field of the header cannot be used.
    pub const INVALID_FIELD: RejectReason = RejectReason(9);
    /// No resources for it.
    pub const OUT_OF_RESOURCES: RejectReason = RejectReason(10);
    /// The negotiation was given up.
    pub const NEGOTIATION_RESET: RejectReason = RejectReason(11);
    /// A logout is awaited.
    pub const WAITING_FOR_LOGOUT: RejectReason = RejectReason(12);
}

/// Reject. Its data is the header that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Why.
    pub reason: RejectReason,
    /// Serial numbers.
    pub numbers: Numbers,
    /// The DataSN or R2TSN that was expected.
    pub data_sn: u32,
}
