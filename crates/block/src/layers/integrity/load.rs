//! Reading the page of a group.

use std::io::IoSlice;

use format::PAGE_BYTES;
use format::integrity::{ChecksumSector, PAGE_SECTORS, SECTOR_BYTES, SectorState};

use super::IntegrityDevice;
use super::geometry::page_offset;
use super::group::{Group, sector_number};
use crate::{BlockDevice, Outcome, Result};

impl<D: BlockDevice> IntegrityDevice<D> {
    /// Reads a group's page, and settles what was in flight when it was written last.
    pub(super) fn load(&self, number: u64) -> Result<Group> {
        let pages = self.read_pages(page_offset(number))?;
        let mut group = Group::new();
        let (mut open, mut differing) = (0, Vec::new());
        for place in 0..PAGE_SECTORS {
            let within = place * SECTOR_BYTES..(place + 1) * SECTOR_BYTES;
            let copies: Vec<&[u8]> = pages.iter().map(|page| &page[within.clone()]).collect();
            let offset = page_offset(number) + within.start as u64;
            match self.load_sector(sector_number(number, place), offset, &copies)? {
                Loaded::Empty => {}
                Loaded::Sector(sector) => {
                    open += usize::from(sector.state == SectorState::Open);
                    group.take_sector(place, &sector);
                }
                Loaded::Differing { newest, good, older } => {
                    open += 1;
                    group.take_sector(place, &newest);
                    older.iter().for_each(|older| group.take_earlier(place, older));
                    differing.push((offset, good));
                }
                Loaded::Damaged(bytes) => group.take_damage(place, bytes),
            }
        }
        if open > 0 {
            // A page that was torn while it was marked is open in part: the next write marks it.
            group.open = group.is_all(open);
            group.dirty = true;
            self.groups.note_active(number);
            self.settle(number, &mut group);
        }
        // A crash left them so. Their blocks went first: the older copies tell of these.
        for (offset, newest) in differing {
            self.below.write_durable(offset, &[IoSlice::new(&newest[..])])?;
        }
        Ok(group)
    }

    /// All copies of a page that can be read.
    fn read_pages(&self, offset: u64) -> Result<Vec<Vec<u8>>> {
        let copies = self.below.copies(offset, PAGE_BYTES as u64);
        let (mut pages, mut failure) = (Vec::new(), None);
        for copy in 0..copies {
            let mut page = vec![0; PAGE_BYTES];
            let read = match copies {
                1 => self.below.read_at(offset, &mut page),
                _ => self.below.read_copy(copy, offset, &mut page),
            };
            match read {
                Ok(()) => pages.push(page),
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if pages.is_empty() => Err(error),
            _ => Ok(pages),
        }
    }

    /// What a sector is, by the newest of its copies that is sound; others are made to agree, but
    /// for those that differ from one that is open.
    fn load_sector(&self, number: u32, offset: u64, copies: &[&[u8]]) -> Result<Loaded> {
        let tag = self.header.tag();
        let decode = |bytes: &[u8]| ChecksumSector::decode(bytes, tag, number);
        let (mut newest, mut good): (Option<ChecksumSector>, Option<&[u8]>) = (None, None);
        let mut older = Vec::new();
        for &bytes in copies {
            match decode(bytes) {
                Ok(Some(sector)) if newest.as_ref().is_none_or(|n| sector.is_newer(n)) => {
                    older.extend(newest.replace(sector));
                    good = Some(bytes);
                }
                Ok(Some(sector)) => older.push(sector),
                // One copy may have lost the first write of the page.
                Ok(None) if good.is_none() => good = Some(bytes),
                Ok(None) | Err(_) => {}
            }
        }
        let Some(good) = good else {
            return self.load_again(number, offset, copies[0]);
        };
        if copies.iter().any(|copy| *copy != good) {
            if let Some(sector) = newest.take_if(|newest| newest.state == SectorState::Open) {
                return Ok(Loaded::Differing {
                    newest: Box::new(sector),
                    good: good.into(),
                    older,
                });
            }
            let mut bytes = good.to_vec();
            self.heal_below(offset, &mut bytes, &|bytes| bytes == good)?;
        }
        Ok(newest.map_or(Loaded::Empty, |sector| Loaded::Sector(Box::new(sector))))
    }

    /// The same for one of which no copy is sound: it may be when it is read again.
    fn load_again(&self, number: u32, offset: u64, found: &[u8]) -> Result<Loaded> {
        let tag = self.header.tag();
        let decode = |bytes: &[u8]| ChecksumSector::decode(bytes, tag, number);
        let mut bytes = Box::new([0; SECTOR_BYTES]);
        bytes.copy_from_slice(found);
        match self.heal_below(offset, &mut bytes[..], &|bytes| decode(bytes).is_ok())? {
            Outcome::Transient | Outcome::Recovered => match decode(&bytes[..]) {
                Ok(Some(sector)) => Ok(Loaded::Sector(Box::new(sector))),
                Ok(None) => Ok(Loaded::Empty),
                Err(_) => Ok(Loaded::Damaged(bytes)),
            },
            Outcome::Agreed | Outcome::Unrecoverable => Ok(Loaded::Damaged(bytes)),
        }
    }
}

/// What a sector turned out to be.
enum Loaded {
    Empty,
    Sector(Box<ChecksumSector>),
    /// One that is open, its bytes, and copies that say something else.
    Differing {
        newest: Box<ChecksumSector>,
        good: Box<[u8]>,
        older: Vec<ChecksumSector>,
    },
    Damaged(Box<[u8; SECTOR_BYTES]>),
}
