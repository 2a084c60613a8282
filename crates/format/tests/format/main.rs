//! The crate's tests: the pages in `docs/format/` against the code, round trips, damage.

mod damage;
mod examples;
mod explain;
mod layers;
mod limits;
mod packs;
mod page;
mod pages;
mod round_trip;
mod share_blocks;
mod values;

use hindsight_format::field::Field;
