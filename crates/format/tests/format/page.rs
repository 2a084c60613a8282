//! What holds a page in `docs/format/` and the code together: its byte tables are compared with the
//! layout constants, its hex examples with the bytes of their values.
//!
//! With `HINDSIGHT_BLESS=1` the hex examples are written instead of compared.

use std::path::PathBuf;

use crate::Field;

pub struct Table {
    pub page: &'static str,
    pub heading: &'static str,
    pub fields: &'static [Field],
}

pub const fn table(page: &'static str, heading: &'static str, fields: &'static [Field]) -> Table {
    Table { page, heading, fields }
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

/// Asserts that these tables are as the code says, and that their pages have no others.
pub fn compare_tables(tables: &[Table]) {
    for Table { page, heading, fields } in tables {
        let text = read(page);
        let expected: Vec<(usize, usize, String)> =
            fields.iter().map(|field| (field.offset, field.bytes, field.name.to_owned())).collect();
        assert_eq!(rows(&text, heading), expected, "{heading} in {page}.md");
        let there = text.matches("| offset | size | field | meaning | valid range |").count();
        let compared = tables.iter().filter(|table| table.page == *page).count();
        assert_eq!(there, compared, "tables in {page}.md");
    }
}

/// Asserts that the example of that name is what the code writes.
pub fn compare_example((page, name, bytes): (&str, &str, Vec<u8>)) {
    let text = read(page);
    let (before, found, after) = split_at_hex(&text, name);
    if std::env::var_os("HINDSIGHT_BLESS").is_some() {
        replace(page, &format!("{before}{}{after}", hex(&bytes)));
        return;
    }
    assert_eq!(found, hex(&bytes), "example {name} in {page}.md");
}
