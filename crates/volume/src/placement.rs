//! Where current data lives: in the log alone, in a current store, or at places of a base; the way
//! there, and from one architecture to another.

pub mod base;
pub mod conversion;
pub mod current_store;
pub mod deferred;
pub mod destage;
pub mod in_place;
pub mod migration;

use std::ops::Deref;

use env::{Rank, RankedMutex};

use crate::catalogue::VolumeRecord;
use crate::placement::base::Base;
use crate::placement::conversion::progress::Conversion;
use crate::placement::deferred::waiting::Deferred;
use crate::placement::destage::progress::Destage;
use crate::volume::stream::Stream;

/// Where a volume's current data lives.
pub struct Placement {
    stream: Stream,
    /// Where settled blocks have their homes: empty where no architecture with a base ever was.
    base: Base,
    destage: RankedMutex<Destage>,
    /// Places that are not written before their windows are over.
    deferred: RankedMutex<Deferred>,
    conversion: RankedMutex<Conversion>,
}

impl Deref for Placement {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl Placement {
    /// That of a stream and its base, as the record says.
    pub fn new(stream: Stream, base: Base, record: &VolumeRecord) -> Placement {
        let is_importing = stream.present().root.outside().is_some();
        let conversion = Conversion::of(record, is_importing);
        Placement {
            stream,
            base,
            destage: RankedMutex::new(Rank::Destage, Destage::of(record)),
            deferred: RankedMutex::new(Rank::Deferred, Deferred::default()),
            conversion: RankedMutex::new(Rank::Conversion, conversion),
        }
    }

    pub(crate) fn base(&self) -> &Base {
        &self.base
    }
}
