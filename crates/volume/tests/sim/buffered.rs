//! Pools whose members are under write buffers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::stack::Stack;
use block::{BlockDevice, Found, MediaDevice, WriteBuffers};
use env::Media;
use parking_lot::Mutex;
use sim::{Random, SimEntropy, SimMedia, SimMemories};

use crate::world::{Trouble, World};

/// The memory of the machine, and the write buffers of the process that runs now.
pub struct Buffered {
    pub memories: SimMemories,
    process: Mutex<Option<WriteBuffers>>,
    random: Mutex<Random>,
    /// Bytes that went through buffers, as far as that was seen.
    pub taken: u64,
    seen: u64,
    /// Bytes that openings found in memories of processes that had died.
    pub found: AtomicU64,
}

/// The stack of a seed.
pub fn stack_of(seed: u64) -> Stack {
    let stacks = ["a", "mirror(a, b)", "a", "parity[journal=256KiB](a, b, c)", "stripe(a, b)"];
    stacks[(seed % 5) as usize].parse().expect("a stack")
}

impl Buffered {
    /// Of the machine that `media` are in.
    pub fn new(media: &SimMedia, seed: u64) -> Buffered {
        let random = Random::new(seed ^ 0xb0ff);
        let memories = SimMemories::of(media, seed);
        Buffered {
            memories,
            process: Mutex::default(),
            random: Mutex::new(random),
            taken: 0,
            seen: 0,
            found: AtomicU64::new(0),
        }
    }

    /// Another process begins, with memory from none to enough for all that is written.
    pub fn start(&self) {
        let bytes = self.random.lock().below(40) << 20;
        self.start_with(bytes);
    }

    /// The same with so much memory.
    pub fn start_with(&self, bytes: u64) {
        let entropy = Box::new(SimEntropy::new(self.random.lock().next_u64()));
        let buffers = WriteBuffers::new(Box::new(self.memories.clone()), entropy);
        buffers.set_memory_bytes(bytes);
        *self.process.lock() = Some(buffers);
    }

    /// The same on another machine, which has forks of the media.
    pub fn forked(&self, media: &SimMedia) -> Buffered {
        let random = Mutex::new(self.random.lock().clone());
        let memories = self.memories.fork(media);
        let found = AtomicU64::new(0);
        Buffered { memories, process: Mutex::default(), random, taken: 0, seen: 0, found }
    }

    /// Buffers come into use.
    pub fn tick(&self) {
        self.process.lock().as_ref().expect("begun").tick();
    }

    /// Makes slots, as a write has found none.
    pub fn grow(&self) {
        let process = self.process.lock();
        let buffers = process.as_ref().expect("begun");
        assert!(buffers.grow(), "a write has found none");
        while buffers.grow() {}
    }

    /// Writes all that waits.
    pub fn write_all(&self) {
        let process = self.process.lock();
        let buffers = process.as_ref().expect("begun");
        for _ in 0..3 {
            buffers.tick();
        }
        while buffers.write_some() {}
    }

    /// A device over media, as this process sees it.
    pub fn over(&self, media: &Arc<SimMedia>) -> Option<Arc<dyn BlockDevice>> {
        let mut process = self.process.lock();
        if process.is_none() {
            drop(process);
            self.start();
            process = self.process.lock();
        }
        let buffers = process.as_ref().expect("begun");
        let media = buffers.over(Arc::<SimMedia>::clone(media) as Arc<dyn Media>).ok()?;
        if let Found::Written(bytes) = media.found() {
            self.found.fetch_add(*bytes, Ordering::Relaxed);
        }
        Some(Arc::new(MediaDevice::new(media)))
    }

    /// What threads of a server do, some of it.
    fn work(&self) {
        let process = self.process.lock();
        let Some(buffers) = process.as_ref() else { return };
        let mut random = self.random.lock();
        for _ in 0..random.below(8) {
            match random.below(4) {
                0 => {
                    buffers.tick();
                }
                1 => while random.chance(800) && buffers.grow() {},
                _ => {
                    buffers.write_some();
                }
            }
        }
    }

    fn taken(&self) -> u64 {
        let process = self.process.lock();
        let status = process.as_ref().map_or_else(Vec::new, WriteBuffers::status);
        status.iter().map(|buffer| buffer.buffered_bytes).sum()
    }
}

impl World {
    /// The write buffers, where there are some.
    pub fn buffered(&self) -> &Buffered {
        self.buffered.as_ref().expect("a world with write buffers")
    }

    /// Takes note of what went through buffers.
    pub fn taken_by_buffers(&mut self) {
        if let Some(buffered) = &mut self.buffered {
            let now = buffered.taken();
            buffered.taken += now.saturating_sub(buffered.seen);
            buffered.seen = now;
        }
    }

    /// Lets threads of the server run, and kills the process in a write to a buffer now and then.
    pub fn work_on_buffers(&mut self) {
        let Some(buffered) = &self.buffered else { return };
        buffered.work();
        self.taken_by_buffers();
        let Some(buffered) = &self.buffered else { return };
        let dies = buffered.random.lock().chance(10);
        if dies && self.trouble == Trouble::None && !self.media.is_halted() {
            buffered.memories.halt_after(buffered.random.lock().below(8));
            self.trouble = Trouble::Halt;
        }
    }

    /// Disarms every fault.
    pub fn calm(&self) {
        self.media.calm();
        if let Some(buffered) = &self.buffered {
            buffered.memories.halt_after(u64::MAX);
        }
    }

    /// The process ends, and the machine if the power goes, before the media are told so.
    pub fn end_buffers(&mut self, power: bool) {
        let Some(buffered) = &mut self.buffered else { return };
        buffered.seen = 0;
        match power {
            true => buffered.memories.cut(),
            false => buffered.memories.kill(),
        }
        buffered.start();
    }
}
