//! iSCSI: RFC 7143, with what clients of RFC 3720 still say.
//!
//! Everything is big-endian but digests, which are CRC32C with the least significant byte first.
//! Requests are PDUs of an initiator, responses those of a target; both sides are here, because
//! tests and measuring tools are initiators.
//!
//! A PDU is its header (48 bytes), additional header segments, a header digest, data padded to four
//! bytes, and a data digest. [`frame`] measures and verifies it, [`decode`] reads the header,
//! [`text`] and [`negotiation`] the data of Login and Text.

pub mod chap;
pub mod decode;
pub mod encode;
pub mod frame;
pub mod limits;
pub mod names;
pub mod negotiation;
mod request;
mod response;
pub mod text;
mod types;

pub use request::{
    CommandRequest, DataOut, LoginRequest, LogoutReason, LogoutRequest, NopOut, Request,
    SnackRequest, TaskAttribute, TaskFunction, TaskRequest, TextRequest,
};
pub use response::{
    AsyncEvent, AsyncMessage, CommandResponse, DataIn, DataInStatus, LoginResponse, LoginStatus,
    LogoutResponse, LogoutResult, NopIn, ReadyToTransfer, Reject, RejectReason, Residual, Response,
    TaskResponse, TaskResult, TextResponse,
};
pub use types::{Bhs, Digests, Isid, Numbers, Serial, Stage, Tag};
