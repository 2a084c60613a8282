//! The header of a call: RFC 5531, section 9 and appendix A.

use super::limits::{AUTH_BYTES_MAX, GIDS_MAX, MACHINE_NAME_BYTES_MAX};
use super::{AuthStat, AuthSys, Call, Credentials, Denied, Flavor, Gids};
use crate::xdr::{Reader, XdrError};

const CALL: u32 = 0;
const RPC_VERSION: u32 = 2;

/// A record that is not a call to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It is no call, or ends within its header: there is nobody to answer, and the connection
    /// ends.
    #[error("a record that is no call")]
    NoCall,
    /// It is answered with a refusal, and the connection goes on.
    #[error("call {xid:#010x} is denied: {denied}")]
    Denied {
        /// The call.
        xid: u32,
        /// The answer.
        denied: Denied,
    },
}

impl From<XdrError> for CallError {
    fn from(_: XdrError) -> CallError {
        CallError::NoCall
    }
}

/// The call in a record.
///
/// # Errors
/// When it is none, or has to be refused whatever it asks for.
pub fn call(body: &[u8]) -> Result<Call<'_>, CallError> {
    let mut reader = Reader::new(body);
    let xid = reader.u32()?;
    if reader.u32()? != CALL {
        return Err(CallError::NoCall);
    }
    if reader.u32()? != RPC_VERSION {
        return Err(CallError::Denied { xid, denied: Denied::RpcMismatch });
    }
    let [program, version, procedure] = [reader.u32()?, reader.u32()?, reader.u32()?];
    let refuse = |stat| CallError::Denied { xid, denied: Denied::AuthError(stat) };
    let (flavor, body) = auth(&mut reader, refuse(AuthStat::BadCred))?;
    let credentials = credentials(flavor, body).ok_or(refuse(AuthStat::BadCred))?;
    let (verifier, body) = auth(&mut reader, refuse(AuthStat::BadVerf))?;
    let needs_none = !matches!(credentials, Credentials::Other(_));
    if needs_none && (verifier != Flavor::NONE || !body.is_empty()) {
        return Err(refuse(AuthStat::BadVerf));
    }
    Ok(Call { xid, program, version, procedure, credentials, arguments: reader.rest() })
}

/// `opaque_auth`; `too_long` is the error when its body exceeds the limit.
fn auth<'a>(reader: &mut Reader<'a>, too_long: CallError) -> Result<(Flavor, &'a [u8]), CallError> {
    let flavor = Flavor(reader.u32()?);
    match reader.opaque(AUTH_BYTES_MAX) {
        Ok(body) => Ok((flavor, body)),
        Err(XdrError::TooLong { .. }) => Err(too_long),
        Err(other) => Err(other.into()),
    }
}

/// The credentials; `None` when they are malformed.
fn credentials(flavor: Flavor, body: &[u8]) -> Option<Credentials<'_>> {
    match flavor {
        Flavor::NONE => body.is_empty().then_some(Credentials::None),
        Flavor::SYS => auth_sys(body).ok().map(Credentials::Sys),
        other => Some(Credentials::Other(other)),
    }
}

fn auth_sys(body: &[u8]) -> Result<AuthSys<'_>, XdrError> {
    let mut reader = Reader::new(body);
    let stamp = reader.u32()?;
    let machine_name = reader.opaque(MACHINE_NAME_BYTES_MAX)?;
    let [uid, gid] = [reader.u32()?, reader.u32()?];
    let mut gids = Gids::default();
    for _ in 0..reader.length(GIDS_MAX)? {
        let is_added = gids.push(reader.u32()?);
        assert!(is_added, "as many fit as the limit says");
    }
    if !reader.rest().is_empty() {
        return Err(XdrError::Contradiction("something follows the groups"));
    }
    Ok(AuthSys { stamp, machine_name, uid, gid, gids })
}
