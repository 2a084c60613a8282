//! A session but for what it receives from and into.

use std::net::SocketAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use volume::Lack;
use wire::iscsi::negotiation::{Negotiation, Parameters};
use wire::iscsi::{LogoutRequest, Tag};
use wire::scsi::Identity;

use super::asked::Write;
use super::context::IscsiContext;
use super::disks::Disks;
use super::sender::Sender;
use super::targets::{Asker, Listing};
use super::task::Tasks;
use super::unit::Aborted;
use crate::buffers::Taker;
use crate::serving::{Jobs, Tally};

/// All of a session but what it receives from and into.
pub(super) struct Core {
    pub(super) context: Arc<IscsiContext>,
    /// The name of the target; none in a session that only asks for targets.
    pub(super) target: Option<String>,
    pub(super) disks: Disks,
    /// The answer to INQUIRY of a number without a unit.
    pub(super) absent: Option<Identity>,
    /// Turns so far.
    pub(super) turns: u64,
    /// How often the pool had reached a threshold when the initiator was told last.
    pub(super) reached: u64,
    pub(super) parameters: Parameters,
    pub(super) negotiation: Negotiation,
    pub(super) sender: Sender,
    pub(super) tasks: Tasks,
    pub(super) jobs: Jobs<Write>,
    pub(super) taker: Taker,
    pub(super) tally: Tally,
    /// Disks have requests that are still to be shown to who measures them.
    pub(super) has_seen: bool,
    /// Tasks that wait for one flush.
    pub(super) flushes: SmallVec<[Tag; 4]>,
    /// The group could not be written without waiting: how much of it was, and what it lacks.
    pub(super) stopped: Option<(u64, Lack)>,
    pub(super) last_transfer: u32,
    /// The rest of a text that is too long for one PDU.
    pub(super) text: Vec<u8>,
    pub(super) logout: Option<LogoutRequest>,
    /// The address at which the initiator found us.
    pub(super) address: Option<SocketAddr>,
    /// The initiator of a session that only asks for targets.
    pub(super) asker: Option<Asker>,
    /// How far it is told of them.
    pub(super) listing: Option<Listing>,
    /// Functions and commands that wait for what other sessions abort.
    pub(super) awaited: Vec<(Tag, Aborted)>,
}
