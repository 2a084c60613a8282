//! Holds the pages in `docs/format/` and the code together: every byte table is compared with the
//! layout constants, every hex example with the bytes of its value.
//!
//! With `HINDSIGHT_BLESS=1` the hex examples are written instead of compared.

use std::path::PathBuf;

use hindsight_format::field::Field;
use hindsight_format::{
    batch, crypt, label, map, pack, page, parity, run, segment, superblock, time, trace,
};

use crate::examples;

struct Table {
    page: &'static str,
    heading: &'static str,
    fields: &'static [Field],
}

const fn table(page: &'static str, heading: &'static str, fields: &'static [Field]) -> Table {
    Table { page, heading, fields }
}

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
    table("time-run", "time entry", time::layout::FIELDS),
    table("trace", "trace header", trace::layout::FIELDS),
    table("trace", "frame header", trace::layout::FRAME_FIELDS),
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
        ("time-run", "time page", examples::time_page().to_vec()),
        ("trace", "trace", examples::trace()),
    ]
}

fn path(page: &str) -> PathBuf {
    let crate_directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    crate_directory.join("../../docs/format").join(format!("{page}.md"))
}

fn read(page: &str) -> String {
    let path = path(page);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replaces a page at once: other tests read it meanwhile.
fn replace(page: &str, text: &str) {
    let new = path(&format!("{page}.new"));
    std::fs::write(&new, text).expect("the page can be written");
    std::fs::rename(&new, path(page)).expect("the page can be replaced");
}

/// The rows (offset, size, field) of the table under a heading.
fn rows(text: &str, heading: &str) -> Vec<(usize, usize, String)> {
    let heading = format!("### {heading}");
    let table = text.lines().skip_while(|line| *line != heading).skip(1);
    let lines = table.skip_while(|line| !line.starts_with('|')).take_while(|l| l.starts_with('|'));
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
    lines
        .skip(2)
        .map(|line| {
            let cells: Vec<String> = cells(line);
            assert_eq!(cells.len(), 7, "five cells in {line}");
            assert!(cells[1..6].iter().all(|cell| !cell.is_empty()), "an empty cell in {line}");
            let number = |cell: &str| cell.parse().expect("a decimal number of bytes");
            (number(&cells[1]), number(&cells[2]), cells[3].clone())
        })
        .collect()
}

/// Sixteen bytes a line after their offset; lines of zeros are left out, but for the last.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (i, line) in bytes.chunks(16).enumerate() {
        let is_last = (i + 1) * 16 >= bytes.len();
        if is_last || line.iter().any(|byte| *byte != 0) {
            let bytes: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("{:04x}: {}\n", i * 16, bytes.join(" "));
        }
    }
    text
}

/// The page's text before, in and after the hex block of that name.
fn split_at_hex<'a>(text: &'a str, name: &str) -> (&'a str, &'a str, &'a str) {
    let opening = format!("```hex {name}\n");
    let start = text.find(&opening).unwrap_or_else(|| panic!("no hex block {name}"));
    let start = start + opening.len();
    let length = text[start..].find("```").expect("the block has an end");
    (&text[..start], &text[start..start + length], &text[start + length..])
}

#[test]
fn every_table_has_the_fields_of_the_code() {
    for Table { page, heading, fields } in TABLES {
        let expected: Vec<(usize, usize, String)> =
            fields.iter().map(|field| (field.offset, field.bytes, field.name.to_owned())).collect();
        assert_eq!(rows(&read(page), heading), expected, "{heading} in {page}.md");
    }
}

#[test]
fn every_table_in_the_pages_is_compared() {
    for page in [
        "superblock",
        "label",
        "segment",
        "batch",
        "crypt",
        "parity",
        "map-run",
        "time-run",
        "trace",
    ] {
        let text = read(page);
        let tables = text.matches("| offset | size | field | meaning | valid range |").count();
        let compared = TABLES.iter().filter(|table| table.page == page).count();
        assert_eq!(tables, compared, "tables in {page}.md");
    }
}

#[test]
fn every_hex_example_is_what_the_code_writes() {
    for (page, name, bytes) in examples() {
        let text = read(page);
        let (before, found, after) = split_at_hex(&text, name);
        if std::env::var_os("HINDSIGHT_BLESS").is_some() {
            let blessed = format!("{before}{}{after}", hex(&bytes));
            replace(page, &blessed);
            continue;
        }
        assert_eq!(found, hex(&bytes), "example {name} in {page}.md");
    }
}
