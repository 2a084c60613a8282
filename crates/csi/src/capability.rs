//! What a volume is used as: a file system or a disk, by one machine or several.

use tonic::Status;

use crate::proto::v1::VolumeCapability;
use crate::proto::v1::volume_capability::AccessType;
use crate::proto::v1::volume_capability::access_mode::Mode;

/// File systems that are made.
const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];

/// What a volume is used as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// A disk.
    Block,
    /// A file system of this kind, mounted with these options.
    Mount {
        /// `ext4` or `xfs`.
        kind: String,
        /// Options of mount.
        options: Vec<String>,
    },
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// As what.
    pub used: Use,
    /// Whether several machines may have it at a time.
    pub is_shared: bool,
    /// Whether nobody writes.
    pub is_read_only: bool,
    /// Whether it is shown in one place only.
    pub is_single: bool,
}

impl Wanted {
    /// Reads a capability; refuses what cannot be.
    pub fn of(capability: Option<&VolumeCapability>) -> Result<Wanted, Status> {
        let wrong = |text: &str| Err(Status::invalid_argument(text));
        let Some(capability) = capability else { return wrong("the capability is lacking") };
        let used = match &capability.access_type {
            None => return wrong("the capability is neither of a disk nor of a file system"),
            Some(AccessType::Block(_)) => Use::Block,
            Some(AccessType::Mount(mount)) => {
                let kind = if mount.fs_type.is_empty() { "ext4" } else { &mount.fs_type };
                if !FILE_SYSTEMS.contains(&kind) {
                    return wrong("only ext4 and xfs are made");
                }
                Use::Mount { kind: kind.to_owned(), options: mount.mount_flags.clone() }
            }
        };
        let mode = capability.access_mode.as_ref().map(|access| access.mode());
        let (is_shared, is_read_only) = match mode {
            None | Some(Mode::Unknown) => return wrong("the access mode is lacking"),
            Some(
                Mode::SingleNodeWriter | Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter,
            ) => (false, false),
            Some(Mode::SingleNodeReaderOnly) => (false, true),
            Some(Mode::MultiNodeReaderOnly) => (true, true),
            Some(Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter) => {
                if used != Use::Block {
                    return wrong("a file system is written to by one machine at a time");
                }
                (true, false)
            }
        };
        let is_single = mode == Some(Mode::SingleNodeSingleWriter);
        Ok(Wanted { used, is_shared, is_read_only, is_single })
    }
}

#[cfg(test)]
mod tests {
    use super::{Use, Wanted};
    use crate::proto::v1::VolumeCapability;
    use crate::proto::v1::volume_capability::access_mode::Mode;
    use crate::proto::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

    fn of(access_type: Option<AccessType>, mode: Mode) -> Result<Wanted, tonic::Status> {
        let access_mode = Some(AccessMode { mode: mode as i32 });
        Wanted::of(Some(&VolumeCapability { access_type, access_mode }))
    }

    fn mount(kind: &str) -> Option<AccessType> {
        Some(AccessType::Mount(MountVolume { fs_type: kind.to_owned(), ..Default::default() }))
    }

    #[test]
    fn only_disks_are_written_to_by_several() {
        let block = || Some(AccessType::Block(BlockVolume {}));
        let ext4 = Use::Mount { kind: "ext4".to_owned(), options: Vec::new() };
        let found = of(mount(""), Mode::SingleNodeWriter).unwrap();
        let (is_shared, is_read_only, is_single) = (false, false, false);
        assert_eq!(found, Wanted { used: ext4, is_shared, is_read_only, is_single });
        assert!(of(mount("xfs"), Mode::SingleNodeSingleWriter).unwrap().is_single);
        assert!(of(block(), Mode::MultiNodeMultiWriter).unwrap().is_shared);
        assert!(of(mount("xfs"), Mode::MultiNodeReaderOnly).unwrap().is_read_only);
        for (access, mode) in [
            (mount("ext4"), Mode::MultiNodeMultiWriter),
            (mount("ext4"), Mode::MultiNodeSingleWriter),
            (mount("ntfs"), Mode::SingleNodeWriter),
            (mount("ext4"), Mode::Unknown),
            (None, Mode::SingleNodeWriter),
        ] {
            assert!(of(access, mode).is_err(), "{mode:?}");
        }
        assert!(Wanted::of(None).is_err());
    }
}
