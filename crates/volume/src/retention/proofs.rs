//! Proofs: what checks said of moments of a volume. They are kept with its record, the newest of
//! them, and hold no moment.

use units::WallTime;

use crate::Result;
use crate::retention::moments::Moments;
use crate::types::{Proof, Verdict};

/// Proofs that are kept of a volume: its record is written with each of its commits.
const PROOFS_MAX: usize = 64;
/// Characters of what a check said.
const SAID_CHARS_MAX: usize = 120;

impl Moments {
    /// The verdicts of checks on its moments, in the order in which they came.
    pub fn proofs(&self) -> Vec<Proof> {
        self.record.lock().proofs.clone()
    }

    /// The newest moment that a check found good.
    pub(crate) fn proved_good(&self) -> Option<WallTime> {
        let record = self.record.lock();
        let good = record.proofs.iter().filter(|proof| proof.verdict == Verdict::Good);
        good.map(|proof| proof.time_ns).max().map(WallTime::from_nanos)
    }

    /// Keeps what a check said of a moment; the oldest proof makes room.
    ///
    /// # Errors
    /// `NotFound` once the volume is deleted; `Refused`.
    pub fn add_proof(&self, mut proof: Proof) -> Result<()> {
        let mut tx = self.begin()?;
        self.check_served()?;
        let detail = format!("seq {} by {}: {}", proof.seq, proof.hook, proof.verdict.name());
        proof.said = proof.said.chars().take(SAID_CHARS_MAX).collect();
        let proofs = &mut tx.change(&self.record).proofs;
        proofs.push(proof);
        let over = proofs.len().saturating_sub(PROOFS_MAX);
        proofs.drain(..over);
        tx.audit("prove", &self.name, detail)?;
        tx.commit().map(drop)
    }
}
