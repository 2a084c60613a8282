//! What `hybrid` should ask of the device: not from a formula, since it chooses by what each block
//! did before, but counted write by write as the lab counts it.

use lab::simulate::{Extents, Simulation, SimulationSettings};
use model::DeviceIos;
use trace::Request;
use units::BLOCK_BYTES;

use crate::ReplayError;

/// One count for each device of the trace.
pub(crate) struct HybridCount {
    window_ns: u64,
    extents: Extents,
    devices: Vec<Simulation>,
}

impl HybridCount {
    /// With windows of this length; 0 keeps every write.
    pub(crate) fn new(window_ns: u64) -> Result<HybridCount, ReplayError> {
        let extents = Extents::new(BLOCK_BYTES)?;
        Ok(HybridCount { window_ns, extents, devices: Vec::new() })
    }

    /// A request; its volume's cache may have so many blocks that wait.
    pub(crate) fn add(&mut self, request: &Request, dirty_blocks: u64) -> Result<(), ReplayError> {
        let settings = SimulationSettings {
            window_ns: self.window_ns,
            dirty_pages: dirty_blocks,
            end_ns: u64::MAX,
        };
        while self.devices.len() <= request.device as usize {
            self.devices.push(Simulation::in_turn(settings));
        }
        let device = &mut self.devices[request.device as usize];
        Ok(self.extents.touch(request, |touch| device.write(touch))?)
    }

    /// Device I/Os for one extent written.
    pub(crate) fn finish(self) -> DeviceIos {
        let counts: Vec<_> = self.devices.into_iter().map(Simulation::finish).collect();
        let writes = counts.iter().map(|one| one.writes).sum::<u64>().max(1) as f64;
        let reads: u64 = counts.iter().map(|one| one.hybrid_of_newest.reads).sum();
        let written: u64 = counts.iter().map(|one| one.hybrid_of_newest.writes).sum();
        DeviceIos { reads: reads as f64 / writes, writes: written as f64 / writes }
    }
}
