//! Names of theirs and of ours.

use tonic::Status;
use units::VolumeName;

/// The volume of a name that somebody chose: that name where it can be one of a volume, or else one
/// made of it, which no other name leads to.
pub fn volume_of(name: &str) -> String {
    let is_ours = name.starts_with(MADE) || name.starts_with(MAKING);
    if VolumeName::check(name).is_ok() && !is_ours {
        return name.to_owned();
    }
    // Bytes that a name may have stay, so that people know it again; a sum of all of them is
    // behind.
    let label: String =
        name.chars().filter(char::is_ascii_alphanumeric).take(LABEL_CHARACTERS_MAX).collect();
    format!("{MADE}{label}-{}", sum(name.as_bytes()))
}

/// The name under which a volume of that name is made: it gets its own when it is whole.
pub fn making(volume: &str) -> String {
    format!("{MAKING}{}", sum(volume.as_bytes()))
}

/// Whether a volume is being made.
pub fn is_being_made(volume: &str) -> bool {
    volume.starts_with(MAKING)
}

/// Names that are made of others begin so, and those of volumes that are being made.
const MADE: &str = "csi-of-";
const MAKING: &str = "csi-making-";
const LABEL_CHARACTERS_MAX: usize = 40;

/// Half of a SHA-256, in hex.
fn sum(bytes: &[u8]) -> String {
    let sum = ring::digest::digest(&ring::digest::SHA256, bytes);
    sum.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The label of the version that is a snapshot of this name.
pub fn label_of(snapshot: &str) -> String {
    format!("{SNAPSHOT}{snapshot}")
}

/// The name of the snapshot that a version is by its label.
pub fn snapshot_of(label: &str) -> Option<&str> {
    label.strip_prefix(SNAPSHOT)
}

const SNAPSHOT: &str = "csi:";

/// The identity of a snapshot, which names its moment: `VOLUME@v:NUMBER`.
pub fn snapshot_id(volume: &str, number: u64) -> String {
    format!("{volume}@v:{number}")
}

/// The volume and the version of a snapshot; none where the text is no identity of ours.
pub fn parts_of(snapshot: &str) -> Option<(&str, u64)> {
    let (volume, number) = snapshot.split_once("@v:")?;
    VolumeName::check(volume).ok()?;
    Some((volume, number.parse().ok()?))
}

/// Refuses an argument that is left out.
pub fn needed<'a>(value: &'a str, what: &str) -> Result<&'a str, Status> {
    match value {
        "" => Err(Status::invalid_argument(format!("{what} is lacking"))),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::{parts_of, snapshot_id, volume_of};
    use units::VolumeName;

    #[test]
    fn names_that_no_volume_can_have_become_others() {
        assert_eq!(volume_of("pvc-7f3c"), "pvc-7f3c");
        let long = "x".repeat(500);
        let odd = ["", "a b", "a/b", "\u{e4}", "-a", ".", &long, "csi-of-a", "csi-making-a"];
        let made: Vec<String> = odd.iter().map(|name| volume_of(name)).collect();
        for (at, name) in made.iter().enumerate() {
            assert!(VolumeName::check(name).is_ok(), "{name}");
            assert!(!made[..at].contains(name), "{name} twice");
        }
        assert_ne!(volume_of("a b"), volume_of("b a"));
        assert!(VolumeName::check(&super::making("a")).is_ok());
    }

    #[test]
    fn a_snapshot_names_its_moment() {
        assert_eq!(parts_of(&snapshot_id("pg", 7)), Some(("pg", 7)));
        for wrong in ["pg", "pg@v:", "pg@v:x", "@v:1", "a/b@v:1", "pg@v:1@v:2", ""] {
            assert_eq!(parts_of(wrong), None, "{wrong}");
        }
    }
}
