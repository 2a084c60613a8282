//! Volumes that begin as a file.

use hindsight_volume::{Granularity, ImportSpec, Result};
use sim::Random;

use crate::action::Action;
use crate::world::{Trouble, World};

const BLOCK: usize = 4096;
/// Steps after which all must be copied, in a world without trouble.
const STEPS_MAX: usize = 5000;
/// Time between them: some are rests.
const STEP_NS: u64 = 1_500_000_000;

/// Where the file of a volume is.
fn path(name: &str) -> String {
    format!("/images/{name}")
}

/// The bytes of a file: some blocks are zeros, now and then all of a page of the map.
fn image(seed: u64, length: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = vec![0; length as usize];
    let is_sparse = random.chance(300);
    for page in bytes.chunks_mut(512 * BLOCK) {
        if is_sparse && random.chance(700) {
            continue;
        }
        for block in page.chunks_mut(BLOCK) {
            if !random.chance(200) {
                random.fill(block);
            }
        }
    }
    bytes
}

/// What a volume of it shows.
pub fn original(seed: u64, length: u64) -> Vec<u8> {
    let mut bytes = image(seed, length);
    bytes.resize(bytes.len().max(BLOCK).next_multiple_of(512), 0);
    bytes
}

impl World {
    /// Makes a volume of a file.
    pub fn import(
        &mut self,
        name: &str,
        (seed, length): (u64, u64),
        granularity: Granularity,
        window_ns: u64,
    ) -> Result<()> {
        self.files.put(&path(name), seed, image(seed, length));
        let spec = self.spec(name, 0, granularity, window_ns);
        let import = ImportSpec { file: path(name), as_raw: true };
        self.pool().import_volume(&spec, &import)?;
        self.adopt(name, original(seed, length), granularity, window_ns);
        Ok(())
    }

    /// All files are copied in the end, where there is room, and then nothing needs them.
    pub fn end_imports(&mut self) {
        self.calm();
        self.trouble = Trouble::None;
        self.act(&Action::SpaceLimit(None));
        for _ in 0..STEPS_MAX {
            let (_, free, available) = self.pool().room();
            let status = self.pool().status();
            let is_tight = available < status.size_bytes / 6 || free < status.size_bytes / 6;
            let volumes = self.pool().volumes();
            let open: Vec<_> = volumes.iter().filter(|v| v.import_info().is_some()).collect();
            if is_tight {
                return;
            }
            if open.is_empty() {
                let names: Vec<String> = self.models.keys().cloned().collect();
                names.iter().for_each(|name| self.files.unlink(&path(name)));
                self.act(&Action::Restart);
                self.act(&Action::CheckAll);
                return;
            }
            self.act(&Action::Wait(STEP_NS));
            self.act(&Action::Step(1 << 20));
        }
        let infos = self.pool().volumes().into_iter().map(|volume| volume.import_info());
        panic!("imports go on for ever: {:?}", infos.collect::<Vec<_>>());
    }
}
