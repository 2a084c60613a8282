//! Arguments to calls.

use super::limits::{FILE_HANDLE_BYTES_MAX, TRANSFER_BYTES_MAX};
use super::{
    Access, Call, CreateHow, DirOpArgs, FileHandle, Ftype3, MknodData, Nfstime3, Procedure, Sattr3,
    SetTime, Specdata3, StableHow,
};
use crate::rpc::ArgumentsError;
use crate::xdr::{Reader, XdrError};

/// The call of a procedure with its arguments. Bytes behind them are not looked at.
///
/// # Errors
/// On a number without procedure, and when the arguments are malformed.
pub fn call(procedure: u32, arguments: &[u8]) -> Result<Call<'_>, ArgumentsError> {
    let number = ArgumentsError::Procedure(procedure);
    let procedure = Procedure::from_number(procedure).ok_or(number)?;
    Ok(arguments_of(procedure, &mut Reader::new(arguments))?)
}

fn arguments_of<'a>(procedure: Procedure, from: &mut Reader<'a>) -> Result<Call<'a>, XdrError> {
    Ok(match procedure {
        Procedure::Null => Call::Null,
        Procedure::Getattr => Call::Getattr { object: handle(from)? },
        Procedure::Setattr => Call::Setattr {
            object: handle(from)?,
            new_attributes: sattr(from)?,
            guard: from.optional(time)?,
        },
        Procedure::Lookup => Call::Lookup { what: dir_op(from)? },
        Procedure::Access => Call::Access { object: handle(from)?, access: Access(from.u32()?) },
        Procedure::Readlink => Call::Readlink { symlink: handle(from)? },
        Procedure::Read => {
            Call::Read { file: handle(from)?, offset: from.u64()?, count: from.u32()? }
        }
        Procedure::Write => write(from)?,
        Procedure::Create => Call::Create { place: dir_op(from)?, how: create_how(from)? },
        Procedure::Mkdir => Call::Mkdir { place: dir_op(from)?, attributes: sattr(from)? },
        Procedure::Symlink => {
            Call::Symlink { place: dir_op(from)?, attributes: sattr(from)?, data: from.text()? }
        }
        Procedure::Mknod => Call::Mknod { place: dir_op(from)?, what: mknod_data(from)? },
        Procedure::Remove => Call::Remove { object: dir_op(from)? },
        Procedure::Rmdir => Call::Rmdir { object: dir_op(from)? },
        Procedure::Rename => Call::Rename { from: dir_op(from)?, to: dir_op(from)? },
        Procedure::Link => Call::Link { file: handle(from)?, link: dir_op(from)? },
        Procedure::Readdir => Call::Readdir {
            dir: handle(from)?,
            cookie: from.u64()?,
            cookieverf: from.fixed()?,
            count: from.u32()?,
        },
        Procedure::Readdirplus => Call::Readdirplus {
            dir: handle(from)?,
            cookie: from.u64()?,
            cookieverf: from.fixed()?,
            dircount: from.u32()?,
            maxcount: from.u32()?,
        },
        Procedure::Fsstat => Call::Fsstat { fsroot: handle(from)? },
        Procedure::Fsinfo => Call::Fsinfo { fsroot: handle(from)? },
        Procedure::Pathconf => Call::Pathconf { object: handle(from)? },
        Procedure::Commit => {
            Call::Commit { file: handle(from)?, offset: from.u64()?, count: from.u32()? }
        }
    })
}

fn handle(from: &mut Reader<'_>) -> Result<FileHandle, XdrError> {
    let bytes = from.opaque(FILE_HANDLE_BYTES_MAX)?;
    Ok(FileHandle::new(bytes).expect("the limit is a handle's"))
}

fn dir_op<'a>(from: &mut Reader<'a>) -> Result<DirOpArgs<'a>, XdrError> {
    Ok(DirOpArgs { dir: handle(from)?, name: from.text()? })
}

fn time(from: &mut Reader<'_>) -> Result<Nfstime3, XdrError> {
    Ok(Nfstime3 { seconds: from.u32()?, nseconds: from.u32()? })
}

fn set_time(from: &mut Reader<'_>) -> Result<SetTime, XdrError> {
    match from.u32()? {
        0 => Ok(SetTime::DontChange),
        1 => Ok(SetTime::ToServerTime),
        2 => time(from).map(SetTime::ToClientTime),
        value => Err(XdrError::Value { what: "time_how", value }),
    }
}

fn sattr(from: &mut Reader<'_>) -> Result<Sattr3, XdrError> {
    Ok(Sattr3 {
        mode: from.optional(Reader::u32)?,
        uid: from.optional(Reader::u32)?,
        gid: from.optional(Reader::u32)?,
        size: from.optional(Reader::u64)?,
        atime: set_time(from)?,
        mtime: set_time(from)?,
    })
}

fn write<'a>(from: &mut Reader<'a>) -> Result<Call<'a>, XdrError> {
    let (file, offset, count) = (handle(from)?, from.u64()?, from.u32()?);
    let stable = from.one_of("stable_how", StableHow::from_number)?;
    let data = from.opaque(TRANSFER_BYTES_MAX)?;
    if usize::try_from(count) != Ok(data.len()) {
        return Err(XdrError::Contradiction("the count of a WRITE is not the length of its data"));
    }
    Ok(Call::Write { file, offset, stable, data })
}

fn create_how(from: &mut Reader<'_>) -> Result<CreateHow, XdrError> {
    match from.u32()? {
        0 => sattr(from).map(CreateHow::Unchecked),
        1 => sattr(from).map(CreateHow::Guarded),
        2 => from.fixed().map(CreateHow::Exclusive),
        value => Err(XdrError::Value { what: "createmode3", value }),
    }
}

fn mknod_data(from: &mut Reader<'_>) -> Result<MknodData, XdrError> {
    let number = from.u32()?;
    Ok(match Ftype3::from_number(number) {
        Some(Ftype3::Chr) => MknodData::Chr(sattr(from)?, device(from)?),
        Some(Ftype3::Blk) => MknodData::Blk(sattr(from)?, device(from)?),
        Some(Ftype3::Sock) => MknodData::Sock(sattr(from)?),
        Some(Ftype3::Fifo) => MknodData::Fifo(sattr(from)?),
        _ => MknodData::Other(number),
    })
}

fn device(from: &mut Reader<'_>) -> Result<Specdata3, XdrError> {
    Ok(Specdata3 { specdata1: from.u32()?, specdata2: from.u32()? })
}
