//! Every byte table and every hex example of the pages in `docs/format/`, but for those of traces.

use hindsight_format::{
    batch, crypt, label, map, pack, page, parity, run, segment, share, superblock, time,
    write_buffer,
};

use crate::page::{Table, compare_example, compare_tables, table};
use crate::{examples, share_blocks};

const TABLES: &[Table] = &[
    table("superblock", "superblock", superblock::layout::FIELDS),
    table("segment", "segment", segment::layout::FIELDS),
    table("label", "label", label::layout::FIELDS),
    table("label", "member of a label", label::layout::MEMBER_FIELDS),
    table("label", "regions", label::layout::REGIONS_FIELDS),
    table("batch", "batch", batch::layout::FIELDS),
    table("batch", "descriptor of a write", batch::layout::DESCRIPTOR_FIELDS),
    table("batch", "descriptor of a relocated write", batch::layout::RELOCATED_FIELDS),
    table("batch", "descriptor of a shared block", batch::layout::SHARED_FIELDS),
    table("crypt", "crypt header", crypt::layout::FIELDS),
    table("map-run", "page header", page::layout::FIELDS),
    table("map-run", "entry", map::layout::FIELDS),
    table("map-run", "extent record", map::layout::RECORD_FIELDS),
    table("map-run", "index entry", run::layout::INDEX_FIELDS),
    table("map-run", "run footer", run::layout::FIELDS),
    table("pack", "pack", pack::layout::FIELDS),
    table("pack", "version in the directory", pack::layout::VERSION_FIELDS),
    table("parity", "parity record", parity::layout::FIELDS),
    table("parity", "entry of a parity record", parity::layout::ENTRY_FIELDS),
    table("parity", "pending entry", parity::layout::PENDING_FIELDS),
    table("write-buffer", "mark of a write buffer", write_buffer::layout::FIELDS),
    table("share", "share root", share::root::layout::FIELDS),
    table("share", "beginning", share::place::layout::FIELDS),
    table("share", "inode", share::inode::layout::FIELDS),
    table("share", "directory node", share::directory::layout::FIELDS),
    table("share", "entry of a directory", share::directory::layout::ENTRY_FIELDS),
    table("share", "child of a directory node", share::directory::layout::CHILD_FIELDS),
    table("share", "free stack", share::stack::layout::FIELDS),
    table("share", "operation log", share::log::layout::FIELDS),
    table("share", "free numbers of a kind", share::log::layout::STACK_FIELDS),
    table("share", "operation", share::operation::layout::FIELDS),
    table("share", "attributes before", share::operation::layout::BEFORE_FIELDS),
    table("share", "attributes that were set", share::operation::layout::SET_FIELDS),
    table("time-run", "time entry", time::layout::FIELDS),
];

fn examples() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    vec![
        ("superblock", "superblock", examples::superblock().encode(2).to_vec()),
        ("segment", "segment", examples::segment().encode().to_vec()),
        ("batch", "batch of writes", examples::batch_of_writes()),
        ("batch", "batch of relocated blocks", examples::batch_of_relocated_blocks()),
        ("batch", "batch of a shared block", examples::batch_of_a_shared_block()),
        ("crypt", "crypt header", examples::crypt_header().encode(1).to_vec()),
        ("map-run", "leaf page", examples::leaf().to_vec()),
        ("map-run", "extent leaf page", examples::extent_leaf().to_vec()),
        ("map-run", "index page", examples::index().to_vec()),
        ("map-run", "run footer", examples::footer().encode(examples::page(2)).to_vec()),
        ("parity", "parity record", examples::parity_record().encode(65_536)),
        ("parity", "pending entry", examples::pending_entry().encode()),
        ("share", "share root", share_blocks::root().encode().to_vec()),
        ("share", "inode", share_blocks::file().encode(share_blocks::FILE).to_vec()),
        ("share", "directory node", share_blocks::leaf().encode(share_blocks::LEAF).to_vec()),
        ("share", "operation log", share_blocks::log().encode(share_blocks::LOG).to_vec()),
        ("time-run", "time page", examples::time_page().to_vec()),
    ]
}

#[test]
fn every_table_has_the_fields_of_the_code() {
    compare_tables(TABLES);
}

#[test]
fn every_hex_example_is_what_the_code_writes() {
    examples().into_iter().for_each(compare_example);
}
