//! A volume that begins as a file, and is served before any of it was copied.
//!
//! The file is the volume's state of seq 1. It is told from others by what the file system says of
//! it (`env::FileIdentity`), not by its content: whoever changes it takes away what was not copied.

use env::ReadOnlyFile;
use history::OUTSIDE_SEQ;

use crate::catalogue::{Numbers, SourceRecord};
use crate::pool::volumes::Volumes;
use crate::types::{ImportInfo, ImportSpec, VolumeSpec};
use crate::volume::Volume;
use crate::volume::creation::Origin;
use crate::volume::stream::Stream;
use crate::{Error, ErrorKind, Result};

use std::sync::Arc;

/// The smallest volume, in bytes; smaller files are filled up with zeros.
const SIZE_BYTES_MIN: u64 = 4096;
/// A volume's size is a multiple of this, in bytes.
const SIZE_BYTES_GRAIN: u64 = 512;
/// How many commits of copies an import may take. One fills a segment.
const ORDERS: u64 = 1 << 32;
/// How images begin whose bytes are not those of the disk.
const CONTAINERS: [(&str, &[u8]); 4] = [
    ("qcow2", b"QFI\xfb"),
    ("VMDK", b"KDMV"),
    ("VHDX", b"vhdxfile"),
    ("VMDK", b"# Disk DescriptorFile"),
];

impl SourceRecord {
    /// A moment of a volume.
    pub(crate) fn of_moment(volume: &str, seq: u64, length_bytes: u64) -> SourceRecord {
        let (file, moment) = (format!("{volume}@seq:{seq}"), true);
        let (inode, modified_ns, changed_ns, orders_below) = (0, 0, 0, 0);
        SourceRecord { file, length_bytes, inode, modified_ns, changed_ns, orders_below, moment }
    }
}

impl Numbers {
    /// Keeps orders for the runs of what is copied, below those of all runs to come.
    pub(crate) fn keep_orders(&mut self, source: SourceRecord) -> SourceRecord {
        self.run += ORDERS;
        SourceRecord { orders_below: self.run + 1, ..source }
    }
}

impl Volumes {
    /// Makes a volume that begins as a file, which it reads until the background has copied it.
    /// Its size is the file's, unless a larger one is asked for.
    ///
    /// # Errors
    /// `NotFound`, `Busy` or `Io` from opening the file; `Invalid` when its form is not raw, or it
    /// cannot be a volume; those of making a volume.
    pub fn import_volume(&self, spec: &VolumeSpec, import: &ImportSpec) -> Result<Arc<Volume>> {
        self.check_open()?;
        if !import.file.starts_with('/') {
            let text = format!("{} is not a whole path", import.file);
            return Err(Error::invalid(text).with_hint("begin it with /"));
        }
        let file = self.core.files.open(&import.file).map_err(|e| unopened(&import.file, e))?;
        let source = identify(&import.file, &*file).map_err(|e| unopened(&import.file, e))?;
        if source.length_bytes == 0 {
            return Err(Error::invalid(format!("{} is empty", import.file)));
        }
        if let Some(form) = container(&*file, source.length_bytes).filter(|_| !import.as_raw) {
            let text = format!("{} is a {form} image: its bytes are not the disk's", import.file);
            return Err(Error::invalid(text).with_hint(
                "import it by copying (without --lazy), or convert it: qemu-img convert -O raw; \
                 should these be the disk's bytes all the same, say --format raw",
            ));
        }
        let least = source.length_bytes.max(SIZE_BYTES_MIN).next_multiple_of(SIZE_BYTES_GRAIN);
        let size_bytes = spec.size_bytes.max(least);
        let spec = VolumeSpec { size_bytes, ..spec.clone() };
        let record = self.new_record(&spec, OUTSIDE_SEQ)?;
        let name = spec.architecture.name();
        let detail = format!(
            "{size_bytes} bytes, {:?}, {name}, from {} ({} bytes)",
            spec.granularity, import.file, source.length_bytes
        );
        self.add_volume(record, Origin::File(source), "volume-import", detail)
    }
}

impl Stream {
    /// The file that this volume is still being imported from, or the volume that it is a clone of.
    #[must_use]
    pub fn import_info(&self) -> Option<ImportInfo> {
        let root = self.present().root.id;
        let source = self.core.source_at(root)?;
        let total_bytes = source.record().length_bytes;
        let done_bytes = source.done_bytes();
        Some(ImportInfo {
            file: source.record().file.clone(),
            done_bytes,
            total_bytes,
            // A moment of another volume has checksums.
            unverified_bytes: if source.record().moment { 0 } else { total_bytes - done_bytes },
            trouble: source.trouble(),
        })
    }
}

fn unopened(path: &str, error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::WouldBlock => ErrorKind::Busy,
        std::io::ErrorKind::InvalidInput
        | std::io::ErrorKind::PermissionDenied
        | std::io::ErrorKind::Unsupported => ErrorKind::Invalid,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("{path} cannot be imported: {error}")).with_source(error)
}

fn identify(path: &str, file: &dyn ReadOnlyFile) -> std::io::Result<SourceRecord> {
    let now = file.identity()?;
    Ok(SourceRecord {
        file: path.to_owned(),
        length_bytes: now.length_bytes,
        inode: now.inode,
        modified_ns: now.modified_ns,
        changed_ns: now.changed_ns,
        orders_below: 0,
        moment: false,
    })
}

/// The form of an image that is not the bytes of a disk.
fn container(file: &dyn ReadOnlyFile, length_bytes: u64) -> Option<&'static str> {
    let is_it = |magic: &[u8]| {
        let mut start = vec![0; magic.len()];
        magic.len() as u64 <= length_bytes && file.read_at(0, &mut start).is_ok() && start == magic
    };
    CONTAINERS.iter().find(|(_, magic)| is_it(magic)).map(|(form, _)| *form)
}
