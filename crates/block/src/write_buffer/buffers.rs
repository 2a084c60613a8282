//! The write buffers of a process, as those see them who make them and write what waits.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use env::{Entropy, Media, SharedMemories};

use super::buffer::{All, WriteBuffer};
use super::shared::{BufferStatus, Shared};

/// The write buffers of a process.
pub struct WriteBuffers {
    shared: Arc<Shared>,
    all: Arc<All>,
}

impl WriteBuffers {
    /// None yet, and no memory for them.
    #[must_use]
    pub fn new(memories: Box<dyn SharedMemories>, entropy: Box<dyn Entropy>) -> WriteBuffers {
        WriteBuffers { shared: Arc::new(Shared::new(memories, entropy)), all: Arc::default() }
    }

    /// Those that come into use from now on have at most so many bytes together, none for 0.
    pub fn set_memory_bytes(&self, bytes: u64) {
        self.shared.set_memory_bytes(bytes);
    }

    /// A buffer over media. What a process that died left to be written is written now; the buffer
    /// is used from a later [`WriteBuffers::tick`] on.
    ///
    /// # Errors
    /// When what was left cannot be read, or not be written.
    pub fn over(&self, media: Arc<dyn Media>) -> io::Result<Arc<WriteBuffer>> {
        WriteBuffer::over(media, Arc::clone(&self.shared), &self.all).map(Arc::new)
    }

    /// Writes something that is full or has waited long; whether there was anything.
    pub fn write_some(&self) -> bool {
        let mut any = false;
        let all = self.all.read();
        for buffer in &*all {
            any |= buffer.write_one(all.len() > 1);
        }
        any
    }

    /// Reads go to the media from now on, but for what waits: somebody wants to know what is there.
    pub fn forget_clean(&self) {
        self.all.read().iter().for_each(|buffer| buffer.lock().forget_clean());
    }

    /// Makes a slot ahead of need, for the one that has the fewest; whether one was needed.
    pub fn grow(&self) -> bool {
        let all = self.all.read();
        let mut all: Vec<_> = all.iter().map(|one| (one.lock().slot_count(), one)).collect();
        all.sort_by_key(|(slots, _)| *slots);
        all.iter().any(|(_, buffer)| buffer.grow())
    }

    /// Time goes on: buffers come into use, and what has waited for some ticks is written soon.
    /// Says whether anything waits.
    pub fn tick(&self) -> bool {
        let mut waits = false;
        for buffer in &*self.all.read() {
            waits |= buffer.tick();
        }
        waits
    }

    /// Waits until there is something to do, or so long.
    pub fn wait(&self, at_most: Duration) {
        self.shared.wait(at_most);
    }

    /// Wakes all who wait.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// How each stands.
    #[must_use]
    pub fn status(&self) -> Vec<BufferStatus> {
        self.all.read().iter().map(|buffer| buffer.status()).collect()
    }
}
