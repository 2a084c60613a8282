//! Results to bytes.

use super::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use super::{ExportNode, MntOk, MountBody, Results};
use crate::xdr::{Encode, Writer};

/// The results of a call, behind what `out` holds.
///
/// # Panics
/// When a string in them exceeds its limit.
pub fn results(results: &Results<'_>, out: &mut Vec<u8>) {
    let mut out = Writer::new(out);
    match results {
        Results::Nothing => {}
        Results::Mnt(Ok(ok)) => {
            out.put(&0_u32).put(ok);
        }
        Results::Mnt(Err(status)) => {
            out.put(status);
        }
        Results::Dump(mounts) => out.list(*mounts),
        Results::Export(exports) => out.list(*exports),
    }
}

impl Encode for MntOk<'_> {
    fn encode(&self, out: &mut Writer<'_>) {
        let count = u32::try_from(self.auth_flavors.len()).expect("there are few flavors");
        out.put(&self.fhandle).put(&count);
        self.auth_flavors.iter().for_each(|flavor| flavor.0.encode(out));
    }
}

impl Encode for MountBody<'_> {
    fn encode(&self, out: &mut Writer<'_>) {
        assert!(self.hostname.len() <= NAME_BYTES_MAX, "a host has a short name");
        assert!(self.directory.len() <= PATH_BYTES_MAX, "a longer path cannot be mounted");
        out.put(&self.hostname).put(&self.directory);
    }
}

impl Encode for ExportNode<'_> {
    fn encode(&self, out: &mut Writer<'_>) {
        assert!(self.dir.len() <= PATH_BYTES_MAX, "a longer path cannot be mounted");
        let is_short = |group: &&[u8]| group.len() <= NAME_BYTES_MAX;
        assert!(self.groups.iter().all(is_short), "a group has a short name");
        out.put(&self.dir).list(self.groups);
    }
}
