//! Arguments to calls.

use super::{Call, Procedure};
use crate::rpc::ArgumentsError;
use crate::xdr::Reader;

/// The call of a procedure with its arguments. Bytes behind them are not looked at.
///
/// # Errors
/// On a number without procedure, and when the arguments are malformed.
pub fn call(procedure: u32, arguments: &[u8]) -> Result<Call<'_>, ArgumentsError> {
    let mut reader = Reader::new(arguments);
    let number = ArgumentsError::Procedure(procedure);
    Ok(match Procedure::from_number(procedure).ok_or(number)? {
        Procedure::Null => Call::Null,
        Procedure::Mnt => Call::Mnt(reader.text()?),
        Procedure::Dump => Call::Dump,
        Procedure::Umnt => Call::Umnt(reader.text()?),
        Procedure::Umntall => Call::Umntall,
        Procedure::Export => Call::Export,
    })
}
