//! LVM: the logical volumes of groups whose physical volumes lie on one disk.
//!
//! 1. A physical volume has a label in one of its first sectors, and places of metadata; of all
//!    that are whole the newest of a group counts. Labels and metadata have checksums.
//! 2. A logical volume is read if all of it lies on this disk, one piece behind the other. Others
//!    (RAID, thin, cache, snapshots, what is being moved) are named, with why they are not read.
//! 3. Nothing is activated; the kernel of the machine that reads sees no group.

mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use crate::bytes::{le32, le64};
use crate::crc::crc32_from;
use crate::error::{Error, ErrorKind, Result};
use crate::part::Part;
use crate::source::{Slice, Source, fetched};
use crate::system::FileSystem;
use text::{Section, Value, shown};

const SECTOR: u64 = 512;
/// Sectors in which a label may be.
const LABEL_SECTORS: u64 = 4;
/// The checksums of LVM begin with this.
const CHECKSUM_START: u32 = 0xf597_a6cf;
const MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
/// Of the header of a place of metadata.
const HEADER_BYTES: u64 = 512;
/// Of the text of a group, at most.
const TEXT_BYTES_MAX: u64 = 2 << 20;
/// Groups on one disk, and volumes of one group, at most.
const GROUPS_MAX: usize = 16;
const VOLUMES_MAX: usize = 4096;
/// Places of data or metadata of one physical volume, at most.
const PLACES_MAX: usize = 16;
/// Set where a place of metadata is not used.
const IGNORED: u32 = 1;

/// What the label of a physical volume says.
struct Label {
    uuid: String,
    /// Places of metadata.
    metadata: Vec<Range<u64>>,
}

/// Places that are listed up to one of zeros, and the end of the list.
fn places(bytes: &[u8], mut at: usize) -> Result<(Vec<Range<u64>>, usize)> {
    let mut found = Vec::new();
    loop {
        let (start, length) = (le64(bytes, at), le64(bytes, at + 8));
        at += 16;
        if start == 0 {
            return Ok((found, at));
        }
        if found.len() == PLACES_MAX || at > bytes.len() {
            return Err(Error::damaged("LVM: the label of a physical volume has no end"));
        }
        found.push(start..start.saturating_add(length));
    }
}

impl Label {
    /// None if there is none.
    fn read(source: &dyn Source) -> Result<Option<Label>> {
        for sector in 0..LABEL_SECTORS {
            let at = sector * SECTOR;
            if at + SECTOR > source.size() {
                return Ok(None);
            }
            let bytes = fetched(source, at, SECTOR as usize)?;
            let is_one = bytes.starts_with(b"LABELONE") && &bytes[24..32] == b"LVM2 001";
            if !is_one || le64(&bytes, 8) != sector {
                continue;
            }
            let header = le32(&bytes, 20) as usize;
            if crc32_from(CHECKSUM_START, &bytes[20..]) != le32(&bytes, 16)
                || header + 40 > bytes.len()
            {
                return Err(Error::damaged("LVM: the label of a physical volume is damaged"));
            }
            let uuid = String::from_utf8_lossy(&bytes[header..header + 32]).into_owned();
            let (_, behind) = places(&bytes, header + 40)?;
            let (metadata, _) = places(&bytes, behind)?;
            return Ok(Some(Label { uuid, metadata }));
        }
        Ok(None)
    }
}

/// What a place of metadata says; none if it is not used, or empty.
fn metadata(source: &dyn Source, place: &Range<u64>) -> Result<Option<Section>> {
    let damaged = || Error::damaged("LVM: a place of metadata is damaged");
    let size = place.end - place.start;
    if size < HEADER_BYTES || place.end > source.size() {
        return Err(damaged());
    }
    let header = fetched(source, place.start, HEADER_BYTES as usize)?;
    let is_whole = header[4..].starts_with(MAGIC)
        && crc32_from(CHECKSUM_START, &header[4..]) == le32(&header, 0)
        && le64(&header, 24) == place.start;
    if !is_whole {
        return Err(damaged());
    }
    let (offset, length) = (le64(&header, 40), le64(&header, 48));
    if offset == 0 || le32(&header, 60) & IGNORED != 0 {
        return Ok(None);
    }
    if offset < HEADER_BYTES || offset >= size || length > size - HEADER_BYTES {
        return Err(damaged());
    }
    if length > TEXT_BYTES_MAX {
        return Err(Error::limit(format!("LVM: metadata of more than {TEXT_BYTES_MAX} bytes")));
    }
    // The text goes on behind the header where it meets the end.
    let before = length.min(size - offset);
    let mut bytes = fetched(source, place.start + offset, before as usize)?;
    let rest = (length - before) as usize;
    bytes.extend(fetched(source, place.start + HEADER_BYTES, rest)?);
    if crc32_from(CHECKSUM_START, &bytes) != le32(&header, 56) {
        return Err(damaged());
    }
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    Section::parse(&bytes[..end]).map(Some)
}

/// A group as one of its texts has it.
struct Group {
    name: String,
    seqno: u64,
    body: Section,
}

/// The newest text of a physical volume.
fn newest(source: &dyn Source, label: &Label) -> Result<Option<Group>> {
    let mut found: Option<Group> = None;
    let mut failed = None;
    for place in &label.metadata {
        let all = match metadata(source, place) {
            Ok(all) => all,
            // The other place may be whole.
            Err(error) => {
                failed = Some(error);
                continue;
            }
        };
        let Some((name, body)) = all.and_then(Section::into_first) else { continue };
        let seqno = body.number("seqno")?;
        if found.as_ref().is_none_or(|group| group.seqno < seqno) {
            found = Some(Group { name, seqno, body });
        }
    }
    match (found, failed) {
        (None, Some(error)) => Err(error),
        (found, _) => Ok(found),
    }
}

/// It is a physical volume all the same, unless the disk failed: opening its part tells what is
/// wrong.
fn unless_source<T>(error: Error) -> Result<Option<T>> {
    if error.kind == ErrorKind::Source { Err(error) } else { Ok(None) }
}

/// What a source is, if it is a physical volume: its group is the label.
pub fn recognise(source: &dyn Source) -> Result<Option<FileSystem>> {
    let label = match Label::read(source) {
        Ok(None) => return Ok(None),
        Ok(label) => label,
        Err(error) => unless_source(error)?,
    };
    let (mut uuid, mut name) = (String::new(), Vec::new());
    if let Some(label) = label {
        let group = newest(source, &label).or_else(unless_source)?;
        name = group.map(|group| group.name.into_bytes()).unwrap_or_default();
        uuid = label.uuid;
    }
    Ok(Some(FileSystem { kind: "lvm", label: name, uuid, is_readable: false }))
}

/// Where physical volumes are by their identity; none where two have the same, as copies do.
type Physical = BTreeMap<String, Option<Range<u64>>>;

/// Adds the logical volumes of the physical ones among some parts; a part whose metadata cannot be
/// read says so when it is opened.
pub fn add_volumes(disk: &Rc<dyn Source>, parts: &mut Vec<Part>) -> Result<()> {
    let mut physical = Physical::new();
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for part in parts.iter_mut() {
        let [range] = &part.ranges[..] else { continue };
        let range = range.clone();
        match add_physical(disk, range, &mut physical, &mut groups) {
            Err(error) if error.kind == ErrorKind::Source => return Err(error),
            Err(error) => part.refused = Some(error.to_string()),
            Ok(()) => {}
        }
    }
    for group in groups.values() {
        parts.extend(volumes(group, &physical));
    }
    Ok(())
}

fn add_physical(
    disk: &Rc<dyn Source>,
    range: Range<u64>,
    physical: &mut Physical,
    groups: &mut BTreeMap<String, Group>,
) -> Result<()> {
    let source = Slice::new(disk.clone(), range.start, range.end - range.start);
    let Some(label) = Label::read(&source)? else { return Ok(()) };
    let place = physical.entry(label.uuid.clone());
    place.and_modify(|place| *place = None).or_insert(Some(range));
    let Some(group) = newest(&source, &label)? else { return Ok(()) };
    let id = group.body.text("id").unwrap_or_default().to_owned();
    if groups.len() == GROUPS_MAX && !groups.contains_key(&id) {
        return Err(Error::limit(format!("LVM: more than {GROUPS_MAX} groups on one disk")));
    }
    if groups.get(&id).is_none_or(|known| known.seqno < group.seqno) {
        groups.insert(id, group);
    }
    Ok(())
}

/// The name that device mapper gives a volume of a group.
fn mapped_name(group: &str, volume: &str) -> String {
    format!("{}-{}", group.replace('-', "--"), volume.replace('-', "--"))
}

fn volumes(group: &Group, physical: &Physical) -> Vec<Part> {
    let snapshots = of_snapshots(group);
    let named: BTreeMap<&str, &Section> = group.body.sections_of("physical_volumes").collect();
    let mut found = Vec::new();
    for (name, volume) in group.body.sections_of("logical_volumes").take(VOLUMES_MAX) {
        if !volume.says("status", "VISIBLE") {
            continue;
        }
        let mut part = Part { name: mapped_name(&group.name, name), ..Part::default() };
        let ranges = match snapshots.contains(name) {
            true => Err(Error::unsupported("LVM: snapshots are not read")),
            false => ranges(group, volume, (&named, physical)),
        };
        match ranges {
            Ok(ranges) => part.ranges = ranges,
            Err(error) => part.refused = Some(error.to_string()),
        }
        found.push(part);
    }
    found
}

/// Volumes of which a segment says that they are a snapshot, or are changed by one.
fn of_snapshots(group: &Group) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let volumes = group.body.sections_of("logical_volumes");
    for (_, segment) in volumes.flat_map(|(_, volume)| volume.sections()) {
        found.extend(segment.text("cow_store"));
        if let Ok(merging) = segment.text("merging_store") {
            found.insert(merging);
            found.extend(segment.text("origin"));
        }
    }
    found
}

/// The physical volumes of a group by name, and where those of the disk are.
type On<'a> = (&'a BTreeMap<&'a str, &'a Section>, &'a Physical);

/// Where a volume is on the disk, in order.
fn ranges(group: &Group, volume: &Section, on: On<'_>) -> Result<Vec<Range<u64>>> {
    let length = |range: &Range<u64>| range.end - range.start;
    let room: u64 = on.1.values().flatten().map(length).sum();
    let mut total = 0_u64;
    let mut segments = Vec::new();
    for (_, segment) in volume.sections() {
        segments.push((segment.number("start_extent")?, segment));
    }
    segments.sort_by_key(|(start, _)| *start);
    let mut next = 0;
    let mut found: Vec<Range<u64>> = Vec::new();
    for (start, segment) in segments {
        if start != next {
            return Err(Error::damaged("LVM: the segments of a volume do not join"));
        }
        let range = range(group, segment, on)?;
        next += segment.number("extent_count")?;
        // No place is anybody's twice.
        total = total.saturating_add(length(&range));
        if total > room {
            return Err(Error::damaged("LVM: a volume is larger than what it lies on"));
        }
        match found.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => found.push(range),
        }
    }
    if found.is_empty() {
        return Err(Error::damaged("LVM: a volume without segments"));
    }
    Ok(found)
}

fn range(group: &Group, segment: &Section, (named, physical): On<'_>) -> Result<Range<u64>> {
    let kind = segment.text("type")?;
    if kind != "striped" {
        return Err(Error::unsupported(format!(
            "LVM: volumes of type {} are not read",
            shown(kind)
        )));
    }
    if segment.number("stripe_count")? != 1 {
        return Err(Error::unsupported("LVM: stripes over several disks are not read"));
    }
    let [Value::Text(of), Value::Number(first)] = segment.list("stripes")? else {
        return Err(Error::damaged("LVM: a segment does not say where it is"));
    };
    let Some(known) = named.get(of.as_str()) else {
        return Err(Error::unsupported(format!(
            "LVM: a volume that lies on {} is not read",
            shown(of)
        )));
    };
    let uuid = known.text("id")?.replace('-', "");
    let on = match physical.get(&uuid) {
        Some(Some(on)) => on,
        Some(None) => {
            return Err(Error::unsupported("LVM: what it lies on is there twice"));
        }
        None => return Err(Error::unsupported("LVM: a piece of it lies on another disk")),
    };
    let extent = group.body.number("extent_size")?.saturating_mul(SECTOR);
    let start = on
        .start
        .saturating_add(known.number("pe_start")?.saturating_mul(SECTOR))
        .saturating_add(first.saturating_mul(extent));
    let count = segment.number("extent_count")?;
    let end = start.saturating_add(count.saturating_mul(extent));
    if end > on.end || start == end {
        return Err(Error::damaged("LVM: a segment lies beyond its physical volume"));
    }
    Ok(start..end)
}
