//! The object of a handle, and who asks for it.

use std::sync::Arc;

use share::{
    Attributes, Credentials, Error, ErrorKind, Past, Share, Tree, ViewBlocks, VolumeBlocks, Wait,
};
use units::FileId;
use wire::nfs3::{FileHandle, Nfsstat3};
use wire::rpc;

use super::answer::{Scope, status};
use super::context::NfsContext;
use super::exports::{Admitted, Peer, admit};
use super::handles::Handle;
use super::shares::Opened;

/// Why a call has no results.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It would have to wait, and its caller does not.
    WouldWait,
    /// It fails.
    Status(Nfsstat3),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        match error.kind {
            ErrorKind::WouldWait => Fault::WouldWait,
            _ => Fault::Status(status(&error)),
        }
    }
}

impl From<Nfsstat3> for Fault {
    fn from(status: Nfsstat3) -> Fault {
        Fault::Status(status)
    }
}

/// The object of a handle, and who asks for it.
pub(crate) struct Located {
    pub(crate) opened: Arc<Opened>,
    pub(crate) handle: Handle,
    pub(crate) admitted: Admitted,
    pub(super) client: u128,
    pub(super) past: Option<Arc<Past<ViewBlocks>>>,
}

impl Located {
    /// The object of a handle, for a client.
    pub(crate) fn find(
        context: &NfsContext,
        peer: Peer,
        credentials: &rpc::Credentials<'_>,
        handle: &FileHandle,
        wait: Wait,
    ) -> Result<Located, Fault> {
        let (handle, hash) = Handle::read(handle).ok_or(Nfsstat3::BadHandle)?;
        let opened = match (context.shares.opened(handle.volume), wait) {
            (Some(opened), _) => opened,
            (None, Wait::MayNot) => return Err(Fault::WouldWait),
            (None, Wait::May) => context.shares.open(handle.volume)?,
        };
        let admitted = admitted(&opened, (&handle, hash), peer, credentials)?;
        if (handle.moment.is_some() || handle.is_moments) && !admitted.may_see_past {
            return Err(Fault::Status(Nfsstat3::Acces));
        }
        let past = match handle.moment {
            None => None,
            Some(seq) => match (opened.past(seq), wait) {
                (Some(past), _) => Some(past),
                (None, Wait::MayNot) => return Err(Fault::WouldWait),
                (None, Wait::May) => Some(opened.open_past(seq)?),
            },
        };
        Ok(Located { opened, handle, admitted, client: peer.client(), past })
    }

    /// The answers about it.
    pub(crate) fn scope(&self) -> Scope<'_> {
        Scope { opened: &self.opened, moment: self.handle.moment }
    }

    pub(super) fn share(&self) -> &Share<VolumeBlocks> {
        self.opened.share()
    }

    pub(crate) fn user(&self) -> &Credentials {
        &self.admitted.user
    }
}

/// The access of a client to the object of a handle of this share.
pub(crate) fn admitted(
    opened: &Opened,
    (handle, hash): (&Handle, u64),
    peer: Peer,
    credentials: &rpc::Credentials<'_>,
) -> Result<Admitted, Nfsstat3> {
    if opened.share().sign(&handle.signed()) != hash {
        // Of a tree that is no more: clients know what to do about that.
        return Err(Nfsstat3::Stale);
    }
    let setting = opened.volume().share().ok_or(Nfsstat3::Stale)?;
    admit(&setting, peer, credentials).ok_or(Nfsstat3::Acces)
}

/// The object of a handle in the present.
pub(crate) fn directory_of(located: &Located, wait: Wait) -> Result<(FileId, Attributes), Fault> {
    let id = located.handle.file;
    Ok((id, located.share().tree(wait)?.attributes(id)?))
}
