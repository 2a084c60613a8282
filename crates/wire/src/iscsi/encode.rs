//! Values to headers, and headers with their data to PDUs.
//!
//! A header is a small value, so that a session can put it before data that lies elsewhere: first
//! [`Head`], then the data, then its [`Tail`]. [`pdu`] does all three.

use super::frame::{digest, padding_bytes};
use super::limits::{AHS_BYTES_MAX, BHS_BYTES, DATA_SEGMENT_FIELD_MAX, DIGEST_BYTES};
use super::request::{
    CommandRequest, DataOut, LoginRequest, LogoutRequest, NopOut, Request, SnackRequest,
    TaskRequest, TextRequest,
};
use super::response::{
    AsyncMessage, CommandResponse, DataIn, LoginResponse, LogoutResponse, NopIn, ReadyToTransfer,
    Reject, Response, TaskResponse, TextResponse,
};
use super::types::{Bhs, Digests, Numbers, Serial, Stage, Tag};
use crate::fields::put;
use crate::scsi::{Lun, Sense};

/// A header with its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; BHS_BYTES + DIGEST_BYTES],
    length: usize,
}

impl Head {
    /// The header of a PDU without additional segments.
    ///
    /// # Panics
    /// When its data is longer than a length of 24 bits.
    #[must_use]
    pub fn new(bhs: &Bhs, data_bytes: usize, digests: Digests) -> Head {
        let mut bytes = [0; BHS_BYTES + DIGEST_BYTES];
        put(&mut bytes, 0, &with_lengths(bhs, 0, data_bytes));
        if digests.header {
            let digest = digest(&[&bytes[..BHS_BYTES]]);
            put(&mut bytes, BHS_BYTES, &digest);
        }
        let length = BHS_BYTES + if digests.header { DIGEST_BYTES } else { 0 };
        Head { bytes, length }
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The padding of data, and its digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    bytes: [u8; 3 + DIGEST_BYTES],
    length: usize,
}

impl Tail {
    /// The tail of the data that stands in `parts`, one after the other.
    #[must_use]
    pub fn new(parts: &[&[u8]], digests: Digests) -> Tail {
        let data_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let mut tail = Tail { length: padding_bytes(data_bytes), ..Tail::default() };
        if digests.data && data_bytes > 0 {
            let digest = match (parts, tail.length) {
                (_, 0) => digest(parts),
                ([data], padding) => digest(&[data, &[0; 3][..padding]]),
                (_, padding) => {
                    let mut all = parts.to_vec();
                    all.push(&[0; 3][..padding]);
                    digest(&all)
                }
            };
            put(&mut tail.bytes, tail.length, &digest);
            tail.length += DIGEST_BYTES;
        }
        tail
    }

    /// Its bytes; none often.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A whole PDU.
///
/// # Panics
/// When its data is longer than a length of 24 bits.
pub fn pdu(bhs: &Bhs, data: &[u8], digests: Digests, out: &mut Vec<u8>) {
    out.extend_from_slice(Head::new(bhs, data.len(), digests).as_bytes());
    out.extend_from_slice(data);
    out.extend_from_slice(Tail::new(&[data], digests).as_bytes());
}

/// A whole PDU with additional header segments, which only initiators send.
///
/// # Panics
/// When the segments are not whole words or too many, or the data is too long.
pub fn pdu_with_ahs(bhs: &Bhs, ahs: &[u8], data: &[u8], digests: Digests, out: &mut Vec<u8>) {
    let bhs = with_lengths(bhs, ahs.len(), data.len());
    out.extend_from_slice(&bhs);
    out.extend_from_slice(ahs);
    if digests.header {
        out.extend_from_slice(&digest(&[&bhs, ahs]));
    }
    out.extend_from_slice(data);
    out.extend_from_slice(Tail::new(&[data], digests).as_bytes());
}

fn with_lengths(bhs: &Bhs, ahs_bytes: usize, data_bytes: usize) -> Bhs {
    assert!(ahs_bytes <= AHS_BYTES_MAX && ahs_bytes.is_multiple_of(4), "whole words, at most 255");
    assert!(data_bytes <= DATA_SEGMENT_FIELD_MAX, "a data segment has a length of 24 bits");
    let mut bhs = *bhs;
    bhs[4] = u8::try_from(ahs_bytes / 4).expect("asserted above");
    let [_, high, middle, low] = u32::try_from(data_bytes).expect("asserted above").to_be_bytes();
    put(&mut bhs, 5, &[high, middle, low]);
    bhs
}

/// The data of a SCSI Response: sense data with its length.
pub fn sense_segment(sense: &Sense, descriptor: bool, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 2]);
    sense.encode(descriptor, out);
    let length = u16::try_from(out.len() - start - 2).expect("sense data is short");
    put(out, start, &length.to_be_bytes());
}

/// The sense data in the data of a SCSI Response; `None` when it is cut short.
#[must_use]
pub fn sense_of_segment(data: &[u8]) -> Option<&[u8]> {
    let (length, rest) = data.split_first_chunk::<2>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

fn bhs(first: u8, flags: u8, lun: Lun, task_tag: Tag, transfer_tag: Tag) -> Bhs {
    let mut bhs = [0; BHS_BYTES];
    bhs[0] = first;
    bhs[1] = flags;
    put(&mut bhs, 8, &lun.0.to_be_bytes());
    put(&mut bhs, 16, &task_tag.0.to_be_bytes());
    put(&mut bhs, 20, &transfer_tag.0.to_be_bytes());
    bhs
}

const fn bit(set: bool, mask: u8) -> u8 {
    if set { mask } else { 0 }
}

fn put_u32(bhs: &mut Bhs, at: usize, field: u32) {
    put(bhs, at, &field.to_be_bytes());
}

fn put_u16(bhs: &mut Bhs, at: usize, field: u16) {
    put(bhs, at, &field.to_be_bytes());
}

fn put_order(bhs: &mut Bhs, cmd_sn: Serial, exp_stat_sn: Serial) {
    put_u32(bhs, 24, cmd_sn.0);
    put_u32(bhs, 28, exp_stat_sn.0);
}

fn put_numbers(bhs: &mut Bhs, numbers: &Numbers) {
    put_u32(bhs, 24, numbers.stat_sn.0);
    put_u32(bhs, 28, numbers.exp_cmd_sn.0);
    put_u32(bhs, 32, numbers.max_cmd_sn.0);
}

fn stages(continues: bool, stage: Stage, next: Option<Stage>) -> u8 {
    let next = next.map_or(0, |next| 0x80 | next.number());
    next | bit(continues, 0x40) | stage.number() << 2
}

const NO_LUN: Lun = Lun(0);

/// The header of a PDU of an initiator; its lengths are put in with its data.
#[must_use]
pub fn request(request: &Request) -> Bhs {
    match request {
        Request::NopOut(pdu) => nop_out(pdu),
        Request::Command(pdu) => command(pdu),
        Request::Task(pdu) => task(pdu),
        Request::Login(pdu) => login(pdu),
        Request::Text(pdu) => text(pdu),
        Request::DataOut(pdu) => data_out(pdu),
        Request::Logout(pdu) => logout(pdu),
        Request::Snack(pdu) => snack(pdu),
    }
}

fn nop_out(pdu: &NopOut) -> Bhs {
    let first = bit(pdu.immediate, 0x40);
    let mut bhs = bhs(first, 0x80, pdu.lun, pdu.task_tag, pdu.transfer_tag);
    put_order(&mut bhs, pdu.cmd_sn, pdu.exp_stat_sn);
    bhs
}

fn command(pdu: &CommandRequest) -> Bhs {
    let flags = bit(pdu.is_final, 0x80)
        | bit(pdu.reads, 0x40)
        | bit(pdu.writes, 0x20)
        | pdu.attribute.number();
    let first = 0x01 | bit(pdu.immediate, 0x40);
    let mut bhs = bhs(first, flags, pdu.lun, pdu.task_tag, Tag(pdu.expected_bytes));
    put_order(&mut bhs, pdu.cmd_sn, pdu.exp_stat_sn);
    put(&mut bhs, 32, &pdu.cdb);
    bhs
}

fn task(pdu: &TaskRequest) -> Bhs {
    let first = 0x02 | bit(pdu.immediate, 0x40);
    let mut bhs = bhs(first, 0x80 | pdu.function.0, pdu.lun, pdu.task_tag, pdu.referenced_tag);
    put_order(&mut bhs, pdu.cmd_sn, pdu.exp_stat_sn);
    put_u32(&mut bhs, 32, pdu.ref_cmd_sn.0);
    put_u32(&mut bhs, 36, pdu.exp_data_sn.0);
    bhs
}

fn login(pdu: &LoginRequest) -> Bhs {
    let flags = stages(pdu.continues, pdu.stage, pdu.next);
    let mut bhs = bhs(0x43, flags, NO_LUN, pdu.task_tag, Tag(u32::from(pdu.cid) << 16));
    bhs[2] = pdu.version_max;
    bhs[3] = pdu.version_min;
    put(&mut bhs, 8, &pdu.isid.0);
    put_u16(&mut bhs, 14, pdu.tsih);
    put_order(&mut bhs, pdu.cmd_sn, pdu.exp_stat_sn);
    bhs
}

fn text(pdu: &TextRequest) -> Bhs {
    let flags = bit(pdu.is_final, 0x80) | bit(pdu.continues, 0x40);
    let first = 0x04 | bit(pdu.immediate, 0x40);
    let mut bhs = bhs(first, flags, pdu.lun, pdu.task_tag, pdu.transfer_tag);
    put_order(&mut bhs, pdu.cmd_sn, pdu.exp_stat_sn);
    bhs
}

fn data_out(pdu: &DataOut) -> Bhs {
    let mut bhs = bhs(0x05, bit(pdu.is_final, 0x80), pdu.lun, pdu.task_tag, pdu.transfer_tag);
    put_u32(&mut bhs, 28, pdu.exp_stat_sn.0);
    put_u32(&mut bhs, 36, pdu.data_sn);
    put_u32(&mut bhs, 40, pdu.offset);
    bhs
}

fn logout(pdu: &LogoutRequest) -> Bhs {
    let first = 0x06 | bit(pdu.immediate, 0x40);
    let cid = Tag(u32::from(pdu.cid) << 16);
    let mut bhs = bhs(first, 0x80 | pdu.reason.0, NO_LUN, pdu.task_tag, cid);
    put_order(&mut bhs, pdu.cmd_sn, pdu.exp_stat_sn);
    bhs
}

fn snack(pdu: &SnackRequest) -> Bhs {
    let mut bhs = bhs(0x10, 0x80 | pdu.kind, pdu.lun, pdu.task_tag, pdu.transfer_tag);
    put_u32(&mut bhs, 28, pdu.exp_stat_sn.0);
    put_u32(&mut bhs, 40, pdu.begin);
    put_u32(&mut bhs, 44, pdu.run);
    bhs
}

/// The header of a PDU of a target; its lengths are put in with its data.
#[must_use]
pub fn response(response: &Response) -> Bhs {
    match response {
        Response::NopIn(pdu) => nop_in(pdu),
        Response::Command(pdu) => command_response(pdu),
        Response::Task(pdu) => task_response(pdu),
        Response::Login(pdu) => login_response(pdu),
        Response::Text(pdu) => text_response(pdu),
        Response::DataIn(pdu) => data_in(pdu),
        Response::Logout(pdu) => logout_response(pdu),
        Response::ReadyToTransfer(pdu) => ready_to_transfer(pdu),
        Response::Async(pdu) => async_message(pdu),
        Response::Reject(pdu) => reject(pdu),
    }
}

/// NOP-In.
#[must_use]
pub fn nop_in(pdu: &NopIn) -> Bhs {
    let mut bhs = bhs(0x20, 0x80, pdu.lun, pdu.task_tag, pdu.transfer_tag);
    put_numbers(&mut bhs, &pdu.numbers);
    bhs
}

/// SCSI Response.
#[must_use]
pub fn command_response(pdu: &CommandResponse) -> Bhs {
    let (overflow, underflow, count) = pdu.residual.parts();
    let flags = 0x80 | bit(overflow, 4) | bit(underflow, 2);
    let mut bhs = bhs(0x21, flags, NO_LUN, pdu.task_tag, Tag(0));
    bhs[2] = pdu.response;
    bhs[3] = pdu.status.0;
    put_numbers(&mut bhs, &pdu.numbers);
    put_u32(&mut bhs, 36, pdu.exp_data_sn);
    put_u32(&mut bhs, 44, count);
    bhs
}

/// Task Management Function Response.
#[must_use]
pub fn task_response(pdu: &TaskResponse) -> Bhs {
    let mut bhs = bhs(0x22, 0x80, NO_LUN, pdu.task_tag, Tag(0));
    bhs[2] = pdu.result.0;
    put_numbers(&mut bhs, &pdu.numbers);
    bhs
}

/// Login Response.
#[must_use]
pub fn login_response(pdu: &LoginResponse) -> Bhs {
    let flags = stages(pdu.continues, pdu.stage, pdu.next);
    let mut bhs = bhs(0x23, flags, NO_LUN, pdu.task_tag, Tag(0));
    bhs[2] = pdu.version_max;
    bhs[3] = pdu.version_active;
    put(&mut bhs, 8, &pdu.isid.0);
    put_u16(&mut bhs, 14, pdu.tsih);
    put_numbers(&mut bhs, &pdu.numbers);
    put_u16(&mut bhs, 36, pdu.status.0);
    bhs
}

/// Text Response.
#[must_use]
pub fn text_response(pdu: &TextResponse) -> Bhs {
    let flags = bit(pdu.is_final, 0x80) | bit(pdu.continues, 0x40);
    let mut bhs = bhs(0x24, flags, pdu.lun, pdu.task_tag, pdu.transfer_tag);
    put_numbers(&mut bhs, &pdu.numbers);
    bhs
}

/// SCSI Data-In.
#[must_use]
pub fn data_in(pdu: &DataIn) -> Bhs {
    let mut flags = bit(pdu.is_final, 0x80) | bit(pdu.acknowledge, 0x40);
    let mut bhs = bhs(0x25, flags, pdu.lun, pdu.task_tag, pdu.transfer_tag);
    if let Some(end) = pdu.status {
        let (overflow, underflow, count) = end.residual.parts();
        flags |= 1 | bit(overflow, 4) | bit(underflow, 2);
        bhs[3] = end.status.0;
        put_u32(&mut bhs, 44, count);
    }
    bhs[1] = flags;
    put_numbers(&mut bhs, &pdu.numbers);
    put_u32(&mut bhs, 36, pdu.data_sn);
    put_u32(&mut bhs, 40, pdu.offset);
    bhs
}

/// Logout Response.
#[must_use]
pub fn logout_response(pdu: &LogoutResponse) -> Bhs {
    let mut bhs = bhs(0x26, 0x80, NO_LUN, pdu.task_tag, Tag(0));
    bhs[2] = pdu.result.0;
    put_numbers(&mut bhs, &pdu.numbers);
    put_u16(&mut bhs, 40, pdu.time_to_wait_s);
    put_u16(&mut bhs, 42, pdu.time_to_retain_s);
    bhs
}

/// R2T.
#[must_use]
pub fn ready_to_transfer(pdu: &ReadyToTransfer) -> Bhs {
    let mut bhs = bhs(0x31, 0x80, pdu.lun, pdu.task_tag, pdu.transfer_tag);
    put_numbers(&mut bhs, &pdu.numbers);
    put_u32(&mut bhs, 36, pdu.r2t_sn);
    put_u32(&mut bhs, 40, pdu.offset);
    put_u32(&mut bhs, 44, pdu.wanted_bytes);
    bhs
}

/// Asynchronous Message.
#[must_use]
pub fn async_message(pdu: &AsyncMessage) -> Bhs {
    let mut bhs = bhs(0x32, 0x80, pdu.lun, Tag::NONE, Tag(0));
    put_numbers(&mut bhs, &pdu.numbers);
    bhs[36] = pdu.event.0;
    bhs[37] = pdu.vendor_code;
    let [first, second, third] = pdu.parameters;
    put_u16(&mut bhs, 38, first);
    put_u16(&mut bhs, 40, second);
    put_u16(&mut bhs, 42, third);
    bhs
}

/// Reject.
#[must_use]
pub fn reject(pdu: &Reject) -> Bhs {
    let mut bhs = bhs(0x3f, 0x80, NO_LUN, Tag::NONE, Tag(0));
    bhs[2] = pdu.reason.0;
    put_numbers(&mut bhs, &pdu.numbers);
    put_u32(&mut bhs, 36, pdu.data_sn);
    bhs
}
