//! Headers to values. [`frame`](super::frame) has measured the PDU; the text of Login and Text is
//! read by [`text`](super::text).

use super::frame::PduError;
use super::request::{
    CommandRequest, DataOut, LoginRequest, LogoutReason, LogoutRequest, NopOut, Request,
    SnackRequest, TaskAttribute, TaskFunction, TaskRequest, TextRequest,
};
use super::response::{
    AsyncEvent, AsyncMessage, CommandResponse, DataIn, DataInStatus, LoginResponse, LoginStatus,
    LogoutResponse, LogoutResult, NopIn, ReadyToTransfer, Reject, RejectReason, Residual, Response,
    TaskResponse, TaskResult, TextResponse,
};
use super::types::{Bhs, Isid, Numbers, Serial, Stage, Tag};
use crate::fields::{be16, be32, be64};
use crate::scsi::{Lun, Status};

/// The operation code of a header.
#[must_use]
pub const fn opcode(bhs: &Bhs) -> u8 {
    bhs[0] & 0x3f
}

/// The task tag of a header, whatever the PDU is.
#[must_use]
pub fn task_tag(bhs: &Bhs) -> Tag {
    Tag(be32(bhs, 16))
}

fn transfer_tag(bhs: &Bhs) -> Tag {
    Tag(be32(bhs, 20))
}

fn lun(bhs: &Bhs) -> Lun {
    Lun(be64(bhs, 8))
}

fn serial(bhs: &Bhs, at: usize) -> Serial {
    Serial(be32(bhs, at))
}

const fn flag(bhs: &Bhs, mask: u8) -> bool {
    bhs[1] & mask != 0
}

/// The header of a PDU of an initiator.
///
/// # Errors
/// On an operation that initiators do not have, and on fields that break the protocol.
pub fn request(bhs: &Bhs) -> Result<Request, PduError> {
    match opcode(bhs) {
        0x00 => Ok(Request::NopOut(nop_out(bhs))),
        0x01 => command(bhs).map(Request::Command),
        0x02 => Ok(Request::Task(task(bhs))),
        0x03 => login(bhs).map(Request::Login),
        0x04 => text(bhs).map(Request::Text),
        0x05 => Ok(Request::DataOut(data_out(bhs))),
        0x06 => Ok(Request::Logout(logout(bhs))),
        0x10 => Ok(Request::Snack(snack(bhs))),
        other => Err(PduError::Opcode(other)),
    }
}

const fn is_immediate(bhs: &Bhs) -> bool {
    bhs[0] & 0x40 != 0
}

fn nop_out(bhs: &Bhs) -> NopOut {
    NopOut {
        immediate: is_immediate(bhs),
        lun: lun(bhs),
        task_tag: task_tag(bhs),
        transfer_tag: transfer_tag(bhs),
        cmd_sn: serial(bhs, 24),
        exp_stat_sn: serial(bhs, 28),
    }
}

fn command(bhs: &Bhs) -> Result<CommandRequest, PduError> {
    let attribute = TaskAttribute::from_number(bhs[1] & 7);
    let mut cdb = [0; 16];
    cdb.copy_from_slice(&bhs[32..]);
    Ok(CommandRequest {
        immediate: is_immediate(bhs),
        is_final: flag(bhs, 0x80),
        reads: flag(bhs, 0x40),
        writes: flag(bhs, 0x20),
        attribute: attribute.ok_or(PduError::Field("no such task attribute"))?,
        lun: lun(bhs),
        task_tag: task_tag(bhs),
        expected_bytes: be32(bhs, 20),
        cmd_sn: serial(bhs, 24),
        exp_stat_sn: serial(bhs, 28),
        cdb,
    })
}

fn task(bhs: &Bhs) -> TaskRequest {
    TaskRequest {
        immediate: is_immediate(bhs),
        function: TaskFunction(bhs[1] & 0x7f),
        lun: lun(bhs),
        task_tag: task_tag(bhs),
        referenced_tag: Tag(be32(bhs, 20)),
        cmd_sn: serial(bhs, 24),
        exp_stat_sn: serial(bhs, 28),
        ref_cmd_sn: serial(bhs, 32),
        exp_data_sn: serial(bhs, 36),
    }
}

/// C, the stage, and the next one if T is set.
fn stages(bhs: &Bhs) -> Result<(bool, Stage, Option<Stage>), PduError> {
    const NO_STAGE: PduError = PduError::Field("no such stage of a login");
    let transits = flag(bhs, 0x80);
    let continues = flag(bhs, 0x40);
    let stage = Stage::from_number(bhs[1] >> 2 & 3).ok_or(NO_STAGE)?;
    if !transits {
        return Ok((continues, stage, None));
    }
    let next = Stage::from_number(bhs[1] & 3).ok_or(NO_STAGE)?;
    if continues {
        return Err(PduError::Protocol("a stage of a login ends within a text"));
    }
    Ok((continues, stage, Some(next)))
}

fn login(bhs: &Bhs) -> Result<LoginRequest, PduError> {
    let (continues, stage, next) = stages(bhs)?;
    if stage == Stage::FullFeature {
        return Err(PduError::Protocol("a login in the full feature phase"));
    }
    if next.is_some_and(|next| next <= stage) {
        return Err(PduError::Protocol("a login goes back a stage"));
    }
    Ok(LoginRequest {
        continues,
        stage,
        next,
        version_max: bhs[2],
        version_min: bhs[3],
        isid: isid(bhs),
        tsih: be16(bhs, 14),
        task_tag: task_tag(bhs),
        cid: be16(bhs, 20),
        cmd_sn: serial(bhs, 24),
        exp_stat_sn: serial(bhs, 28),
    })
}

fn isid(bhs: &Bhs) -> Isid {
    Isid([bhs[8], bhs[9], bhs[10], bhs[11], bhs[12], bhs[13]])
}

fn text(bhs: &Bhs) -> Result<TextRequest, PduError> {
    let (is_final, continues) = (flag(bhs, 0x80), flag(bhs, 0x40));
    if is_final && continues {
        return Err(PduError::Protocol("a text is final and goes on"));
    }
    Ok(TextRequest {
        immediate: is_immediate(bhs),
        is_final,
        continues,
        lun: lun(bhs),
        task_tag: task_tag(bhs),
        transfer_tag: transfer_tag(bhs),
        cmd_sn: serial(bhs, 24),
        exp_stat_sn: serial(bhs, 28),
    })
}

fn data_out(bhs: &Bhs) -> DataOut {
    DataOut {
        is_final: flag(bhs, 0x80),
        lun: lun(bhs),
        task_tag: task_tag(bhs),
        transfer_tag: transfer_tag(bhs),
        exp_stat_sn: serial(bhs, 28),
        data_sn: be32(bhs, 36),
        offset: be32(bhs, 40),
    }
}

fn logout(bhs: &Bhs) -> LogoutRequest {
    LogoutRequest {
        immediate: is_immediate(bhs),
        reason: LogoutReason(bhs[1] & 0x7f),
        task_tag: task_tag(bhs),
        cid: be16(bhs, 20),
        cmd_sn: serial(bhs, 24),
        exp_stat_sn: serial(bhs, 28),
    }
}

fn snack(bhs: &Bhs) -> SnackRequest {
    SnackRequest {
        kind: bhs[1] & 0xf,
        lun: lun(bhs),
        task_tag: task_tag(bhs),
        transfer_tag: transfer_tag(bhs),
        exp_stat_sn: serial(bhs, 28),
        begin: be32(bhs, 40),
        run: be32(bhs, 44),
    }
}

/// The kinds of additional header segments of a command; none is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AhsKinds {
    /// The rest of a CDB of more than 16 bytes.
    pub extended_cdb: bool,
    /// The bytes expected by a command that reads and writes.
    pub bidirectional: bool,
}

/// The kinds of the additional header segments of a PDU.
///
/// # Errors
/// When a segment does not end within them, or is of no known kind.
pub fn ahs(mut bytes: &[u8]) -> Result<AhsKinds, PduError> {
    let mut kinds = AhsKinds::default();
    while !bytes.is_empty() {
        let Some(&[high, low, kind]) = bytes.first_chunk::<3>() else {
            return Err(PduError::Protocol("an additional header segment is cut short"));
        };
        let segment = (3 + usize::from(u16::from_be_bytes([high, low]))).next_multiple_of(4);
        let Some(rest) = bytes.get(segment..) else {
            return Err(PduError::Protocol("an additional header segment is cut short"));
        };
        match kind & 0x3f {
            1 => kinds.extended_cdb = true,
            2 => kinds.bidirectional = true,
            _ => return Err(PduError::Field("no such kind of additional header segment")),
        }
        bytes = rest;
    }
    Ok(kinds)
}

/// The header of a PDU of a target.
///
/// # Errors
/// On an operation that targets do not have, and on fields that break the protocol.
pub fn response(bhs: &Bhs) -> Result<Response, PduError> {
    match opcode(bhs) {
        0x20 => Ok(Response::NopIn(NopIn {
            lun: lun(bhs),
            task_tag: task_tag(bhs),
            transfer_tag: transfer_tag(bhs),
            numbers: numbers(bhs),
        })),
        0x21 => command_response(bhs).map(Response::Command),
        0x22 => Ok(Response::Task(TaskResponse {
            result: TaskResult(bhs[2]),
            task_tag: task_tag(bhs),
            numbers: numbers(bhs),
        })),
        0x23 => login_response(bhs).map(Response::Login),
        0x24 => text_response(bhs).map(Response::Text),
        0x25 => data_in(bhs).map(Response::DataIn),
        0x26 => Ok(Response::Logout(logout_response(bhs))),
        0x31 => Ok(Response::ReadyToTransfer(ready_to_transfer(bhs))),
        0x32 => Ok(Response::Async(async_message(bhs))),
        0x3f => Ok(Response::Reject(Reject {
            reason: RejectReason(bhs[2]),
            numbers: numbers(bhs),
            data_sn: be32(bhs, 36),
        })),
        other => Err(PduError::Opcode(other)),
    }
}

fn numbers(bhs: &Bhs) -> Numbers {
    Numbers { stat_sn: serial(bhs, 24), exp_cmd_sn: serial(bhs, 28), max_cmd_sn: serial(bhs, 32) }
}

fn residual(bhs: &Bhs, overflow: u8, underflow: u8) -> Result<Residual, PduError> {
    let count = be32(bhs, 44);
    match (flag(bhs, overflow), flag(bhs, underflow)) {
        (false, false) => Ok(Residual::None),
        (false, true) => Ok(Residual::Underflow(count)),
        (true, false) => Ok(Residual::Overflow(count)),
        (true, true) => Err(PduError::Protocol("a transfer has overflown and underflown")),
    }
}

fn command_response(bhs: &Bhs) -> Result<CommandResponse, PduError> {
    Ok(CommandResponse {
        response: bhs[2],
        status: Status(bhs[3]),
        task_tag: task_tag(bhs),
        numbers: numbers(bhs),
        exp_data_sn: be32(bhs, 36),
        residual: residual(bhs, 4, 2)?,
    })
}

fn login_response(bhs: &Bhs) -> Result<LoginResponse, PduError> {
    let (continues, stage, next) = stages(bhs)?;
    Ok(LoginResponse {
        continues,
        stage,
        next,
        version_max: bhs[2],
        version_active: bhs[3],
        isid: isid(bhs),
        tsih: be16(bhs, 14),
        task_tag: task_tag(bhs),
        numbers: numbers(bhs),
        status: LoginStatus(be16(bhs, 36)),
    })
}

fn text_response(bhs: &Bhs) -> Result<TextResponse, PduError> {
    let (is_final, continues) = (flag(bhs, 0x80), flag(bhs, 0x40));
    if is_final && continues {
        return Err(PduError::Protocol("a text is final and goes on"));
    }
    Ok(TextResponse {
        is_final,
        continues,
        lun: lun(bhs),
        task_tag: task_tag(bhs),
        transfer_tag: transfer_tag(bhs),
        numbers: numbers(bhs),
    })
}

fn data_in(bhs: &Bhs) -> Result<DataIn, PduError> {
    let status = if flag(bhs, 1) {
        Some(DataInStatus { status: Status(bhs[3]), residual: residual(bhs, 4, 2)? })
    } else {
        None
    };
    Ok(DataIn {
        is_final: flag(bhs, 0x80),
        acknowledge: flag(bhs, 0x40),
        status,
        lun: lun(bhs),
        task_tag: task_tag(bhs),
        transfer_tag: transfer_tag(bhs),
        numbers: numbers(bhs),
        data_sn: be32(bhs, 36),
        offset: be32(bhs, 40),
    })
}

fn logout_response(bhs: &Bhs) -> LogoutResponse {
    LogoutResponse {
        result: LogoutResult(bhs[2]),
        task_tag: task_tag(bhs),
        numbers: numbers(bhs),
        time_to_wait_s: be16(bhs, 40),
        time_to_retain_s: be16(bhs, 42),
    }
}

fn ready_to_transfer(bhs: &Bhs) -> ReadyToTransfer {
    ReadyToTransfer {
        lun: lun(bhs),
        task_tag: task_tag(bhs),
        transfer_tag: transfer_tag(bhs),
        numbers: numbers(bhs),
        r2t_sn: be32(bhs, 36),
        offset: be32(bhs, 40),
        wanted_bytes: be32(bhs, 44),
    }
}

fn async_message(bhs: &Bhs) -> AsyncMessage {
    AsyncMessage {
        lun: lun(bhs),
        numbers: numbers(bhs),
        event: AsyncEvent(bhs[36]),
        vendor_code: bhs[37],
        parameters: [be16(bhs, 38), be16(bhs, 40), be16(bhs, 42)],
    }
}
