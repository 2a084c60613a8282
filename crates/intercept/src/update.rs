//! A call that changed something, with its reply.

use std::ops::Range;

use wire::nfs_client::replies;
use wire::nfs3::{
    self, Call, CreateHow, DirOpArgs, Fattr3, FileHandle, Procedure, Results, Verifier,
};
use wire::rpc::{self, Accepted, Reply};
use wire::xdr::Reader;

/// A call that the primary carried out, and its reply: the bodies of their records.
#[derive(Debug)]
pub struct Record {
    /// The client's address, as IPv6.
    pub client: u128,
    /// The call.
    pub call: Vec<u8>,
    /// The reply.
    pub reply: Vec<u8>,
}

/// A record, decoded.
#[derive(Debug)]
pub(crate) struct Update<'r> {
    pub(crate) asked: rpc::Call<'r>,
    pub(crate) call: Call<'r>,
    pub(crate) results: Results<'r>,
}

/// What the reply to a call says.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, and not for long")]
pub(crate) enum Outcome<'r> {
    /// It changed something.
    Done(Update<'r>),
    /// It changed nothing.
    Refused,
    /// Nothing that can be read.
    Unknown,
}

/// What a call touches, as far as its order with others matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A name in a directory.
    Name(FileHandle, Vec<u8>),
    /// Bytes of an object; all of them stand for its attributes too.
    Bytes(FileHandle, Range<u64>),
    /// All bytes of a file that the call does not say: that of a CREATE which cuts what is there.
    AnyBytes,
}

/// Something of the primary that the follower may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dirty {
    /// Content and attributes of an object.
    Object(FileHandle),
    /// Attributes of a file, and bytes of it: from where, and how many.
    Bytes(FileHandle, u64, u64),
    /// The entries of a directory.
    Entries(FileHandle),
    /// All that is there.
    Everything,
}

impl Key {
    /// Whether the outcome depends on which of two calls is first.
    pub(crate) fn conflicts(&self, other: &Key) -> bool {
        match (self, other) {
            (Key::Name(dir, name), Key::Name(other_dir, other_name)) => {
                dir == other_dir && name == other_name
            }
            (Key::Bytes(file, bytes), Key::Bytes(other, others)) => {
                file == other && bytes.start < others.end && others.start < bytes.end
            }
            (Key::AnyBytes, other) | (other, Key::AnyBytes) => !matches!(other, Key::Name(..)),
            _ => false,
        }
    }
}

/// The call in a record's body, if it is one of NFS that changes something.
pub(crate) fn changing(body: &[u8]) -> Option<(rpc::Call<'_>, Call<'_>)> {
    let asked = rpc::decode::call(body).ok()?;
    if (asked.program, asked.version) != (nfs3::PROGRAM, nfs3::VERSION) {
        return None;
    }
    let call = nfs3::decode::call(asked.procedure, asked.arguments).ok()?;
    (!keys(&call).is_empty()).then_some((asked, call))
}

/// What a call touches; nothing if it changes nothing.
pub(crate) fn keys(call: &Call<'_>) -> Vec<Key> {
    let name = |place: &DirOpArgs<'_>| Key::Name(place.dir, place.name.of_any_length().to_vec());
    match call {
        Call::Setattr { object, .. } => vec![Key::Bytes(*object, 0..u64::MAX)],
        Call::Write { file, offset, data, .. } => {
            vec![Key::Bytes(*file, *offset..offset.saturating_add(data.len() as u64))]
        }
        Call::Create { place, how: CreateHow::Unchecked(set) } if set.size.is_some() => {
            vec![name(place), Key::AnyBytes]
        }
        Call::Create { place, .. }
        | Call::Mkdir { place, .. }
        | Call::Symlink { place, .. }
        | Call::Mknod { place, .. } => vec![name(place)],
        Call::Remove { object } | Call::Rmdir { object } => vec![name(object)],
        Call::Rename { from, to } => vec![name(from), name(to)],
        Call::Link { link, .. } => vec![name(link)],
        _ => Vec::new(),
    }
}

/// What has to be compared if it is not known what became of a call.
pub(crate) fn dirty_of_call(call: &Call<'_>) -> Vec<Dirty> {
    match call {
        Call::Setattr { object, .. } => vec![Dirty::Object(*object)],
        Call::Write { file, offset, data, .. } => {
            vec![Dirty::Bytes(*file, *offset, data.len() as u64)]
        }
        Call::Create { place, .. }
        | Call::Mkdir { place, .. }
        | Call::Symlink { place, .. }
        | Call::Mknod { place, .. } => vec![Dirty::Entries(place.dir)],
        Call::Remove { object } | Call::Rmdir { object } => vec![Dirty::Entries(object.dir)],
        Call::Rename { from, to } => vec![Dirty::Entries(from.dir), Dirty::Entries(to.dir)],
        Call::Link { file, link } => vec![Dirty::Object(*file), Dirty::Entries(link.dir)],
        _ => Vec::new(),
    }
}

impl Record {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.call.len() + self.reply.len() + size_of::<Record>()
    }

    /// Decodes it.
    pub(crate) fn outcome(&self) -> Outcome<'_> {
        let decode = || {
            let (asked, call) = changing(&self.call)?;
            let mut from = Reader::new(&self.reply);
            let (_, reply) = replies::rpc_reply(&mut from).ok()?;
            if reply != Reply::Accepted(Accepted::Success) {
                return Some(Outcome::Refused);
            }
            let procedure = Procedure::from_number(asked.procedure)?;
            let results = replies::results(procedure, &mut from).ok()?;
            Some(match is_done(&results) {
                true => Outcome::Done(Update { asked, call, results }),
                false => Outcome::Refused,
            })
        };
        decode().unwrap_or(Outcome::Unknown)
    }

    /// The change, if it was made.
    pub(crate) fn update(&self) -> Option<Update<'_>> {
        match self.outcome() {
            Outcome::Done(update) => Some(update),
            Outcome::Refused | Outcome::Unknown => None,
        }
    }

    /// The verifier of what was written: another one, and the server may have lost some of it.
    pub(crate) fn verifier(&self) -> Option<Verifier> {
        match self.update()?.results {
            Results::Write(Ok(written)) => Some(written.verf),
            _ => None,
        }
    }

    /// What has to be compared if it is not carried out on the follower.
    pub(crate) fn dirty(&self) -> Vec<Dirty> {
        match self.update() {
            None => Vec::new(),
            Some(update) => {
                let mut dirty = dirty_of_call(&update.call);
                dirty.extend(update.made().and_then(|(made, _)| made).map(Dirty::Object));
                dirty
            }
        }
    }
}

impl Update<'_> {
    /// The handle and the attributes of what was made, as far as the reply has them.
    pub(crate) fn made(&self) -> Option<(Option<FileHandle>, Option<Fattr3>)> {
        match &self.results {
            Results::Create(Ok(made))
            | Results::Mkdir(Ok(made))
            | Results::Symlink(Ok(made))
            | Results::Mknod(Ok(made)) => Some((made.obj, made.obj_attributes)),
            _ => None,
        }
    }

    /// The attributes of the object that was changed, after it was.
    pub(crate) fn after(&self) -> Option<Fattr3> {
        match &self.results {
            Results::Setattr(Ok(wcc)) => wcc.after,
            Results::Write(Ok(written)) => written.file_wcc.after,
            Results::Link(Ok(link)) => link.file_attributes,
            _ => self.made().and_then(|(_, attributes)| attributes),
        }
    }
}

fn is_done(results: &Results<'_>) -> bool {
    match results {
        Results::Setattr(of) => of.is_ok(),
        Results::Write(of) => of.is_ok(),
        Results::Create(of) | Results::Mkdir(of) | Results::Symlink(of) | Results::Mknod(of) => {
            of.is_ok()
        }
        Results::Remove(of) | Results::Rmdir(of) => of.is_ok(),
        Results::Rename(of) => of.is_ok(),
        Results::Link(of) => of.is_ok(),
        _ => false,
    }
}
