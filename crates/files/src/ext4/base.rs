//! An ext4 that is open, which the other files of this folder add to.

use std::cell::RefCell;
use std::rc::Rc;

use super::overlay::Overlay;
use super::shape::Shape;
use crate::tree::{Node, Piece, State};

/// An ext4 that is open.
pub struct Ext4 {
    pub over: Overlay,
    pub shape: Shape,
    pub state: State,
    /// The places of the file that was read last.
    pub last: RefCell<Option<(Node, Rc<Vec<Piece>>)>>,
}
