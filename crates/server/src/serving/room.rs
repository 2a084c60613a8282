//! The right to wait for room.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Jobs that wait for room at once, of all connections: on one data thread, or on several.
pub(super) const PATIENT_MAX: usize = 8;

/// The right to wait for room, of all connections.
#[derive(Clone, Debug)]
pub struct RoomQueue(pub(super) Arc<Semaphore>);

impl Default for RoomQueue {
    fn default() -> RoomQueue {
        RoomQueue(Arc::new(Semaphore::new(PATIENT_MAX)))
    }
}
