//! What the first sector says.

use crate::bytes::{le16, le64};
use crate::error::Result;
use crate::source::{Source, fetch};

/// The largest cluster, in bytes.
const CLUSTER_BYTES_MAX: u64 = 2 << 20;
/// The shortest and longest record, and block of names, in bytes.
const RECORD_BYTES: std::ops::RangeInclusive<u64> = 512..=64 << 10;

/// Where things are.
pub struct Shape {
    pub cluster_bytes: u64,
    pub clusters: u64,
    pub record_bytes: u64,
    /// The cluster that the file of records begins with.
    pub records_at: u64,
    pub serial: u64,
}

/// A number of clusters, or, below zero, a power of two of bytes.
fn bytes_of(told: u8, cluster_bytes: u64) -> Option<u64> {
    let told = told.cast_signed();
    let bytes = if told > 0 {
        u64::from(told.unsigned_abs()) * cluster_bytes
    } else {
        1_u64.checked_shl(u32::from(told.unsigned_abs()))?
    };
    (bytes.is_power_of_two() && RECORD_BYTES.contains(&bytes)).then_some(bytes)
}

impl Shape {
    /// None if it is no NTFS.
    pub fn read(disk: &dyn Source) -> Result<Option<Shape>> {
        let mut first = [0; 512];
        if disk.size() < 512 {
            return Ok(None);
        }
        fetch(disk, 0, &mut first)?;
        if &first[3..11] != b"NTFS    " || first[510..] != [0x55, 0xAA] {
            return Ok(None);
        }
        Ok(Shape::parse(&first, disk.size()))
    }

    fn parse(first: &[u8; 512], size: u64) -> Option<Shape> {
        let sector = u64::from(le16(first, 11));
        // Clusters of many sectors are a power of two, below zero.
        let per_cluster = match first[13] {
            count @ 0..=0x80 => u64::from(count),
            power => 1_u64.checked_shl(256 - u32::from(power))?,
        };
        let cluster_bytes = sector.checked_mul(per_cluster)?;
        let is_sound = matches!(sector, 512 | 1024 | 2048 | 4096)
            && cluster_bytes.is_power_of_two()
            && cluster_bytes <= CLUSTER_BYTES_MAX;
        if !is_sound {
            return None;
        }
        let sectors = le64(first, 40);
        let clusters = sectors / per_cluster;
        let records_at = le64(first, 48);
        if sectors.checked_mul(sector)? > size || records_at >= clusters {
            return None;
        }
        let record_bytes = bytes_of(first[64], cluster_bytes)?;
        if records_at * cluster_bytes + record_bytes > clusters * cluster_bytes {
            return None;
        }
        Some(Shape { cluster_bytes, clusters, record_bytes, records_at, serial: le64(first, 72) })
    }
}

#[cfg(test)]
mod tests {
    use super::bytes_of;

    #[test]
    fn sizes_are_clusters_or_powers() {
        assert_eq!(bytes_of(0xF6, 4096), Some(1024));
        assert_eq!(bytes_of(1, 4096), Some(4096));
        assert_eq!(bytes_of(3, 4096), None);
        assert_eq!(bytes_of(0, 4096), None);
        assert_eq!(bytes_of(0x80, 4096), None);
    }
}
