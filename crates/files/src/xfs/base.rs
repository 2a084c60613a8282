//! An XFS that is open, which the other files of this folder add to.

use std::cell::RefCell;
use std::rc::Rc;

use super::overlay::Overlay;
use super::shape::Shape;
use crate::tree::{Node, Piece, State};

/// An XFS that is open.
pub struct Xfs {
    pub over: Overlay,
    pub shape: Shape,
    pub state: State,
    /// The end of the log: nothing on the disk is newer.
    pub newest: u64,
    /// The places of the file that was read last.
    pub last: RefCell<Option<(Node, Rc<Vec<Piece>>)>>,
}
