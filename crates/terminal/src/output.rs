//! Tables and numbers for people.

/// Which way a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table with a heading; columns are as wide as they must be.
pub fn table(heading: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heading.iter().map(|(name, _)| name.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let heads: Vec<String> = heading.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&heads).chain(rows) {
        let mut line = String::new();
        for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(heading) {
            let padding = " ".repeat(width - cell.chars().count());
            match align {
                Align::Left => line.push_str(&format!("{cell}{padding}  ")),
                Align::Right => line.push_str(&format!("{padding}{cell}  ")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A table of rows that is put together column by column.
pub struct Table<'a, R> {
    rows: Vec<R>,
    heading: Vec<(&'a str, Align)>,
    cells: Vec<Vec<String>>,
}

impl<'a, R> Table<'a, R> {
    /// A table of rows, without a column.
    pub fn of(rows: impl IntoIterator<Item = R>) -> Table<'a, R> {
        let rows: Vec<R> = rows.into_iter().collect();
        let cells = vec![Vec::new(); rows.len()];
        Table { rows, heading: Vec::new(), cells }
    }

    /// One more column, of words.
    pub fn left(self, name: &'a str, cell: impl Fn(&R) -> String) -> Table<'a, R> {
        self.column((name, Align::Left), cell)
    }

    /// One more column, of numbers.
    pub fn right(self, name: &'a str, cell: impl Fn(&R) -> String) -> Table<'a, R> {
        self.column((name, Align::Right), cell)
    }

    fn column(mut self, head: (&'a str, Align), cell: impl Fn(&R) -> String) -> Table<'a, R> {
        self.heading.push(head);
        for (cells, row) in self.cells.iter_mut().zip(&self.rows) {
            cells.push(cell(row));
        }
        self
    }

    /// All of it.
    pub fn text(&self) -> String {
        table(&self.heading, &self.cells)
    }
}

/// Names and values, one pair a line.
pub fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = pairs.iter().map(|(name, value)| format!("{name:width$}  {value}\n"));
    lines.collect()
}

/// Bytes for people: `0 B`, `512 B`, `1.5 MiB`, `10 GiB`.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.1}");
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), UNITS[unit])
}

/// One or many: `1 range`, `3 ranges`.
pub fn count(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

#[cfg(test)]
mod tests {
    use super::{Align, human, table};

    #[test]
    fn columns_are_aligned_and_lines_have_no_tail() {
        let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["bbb".to_owned(), "1".to_owned()]];
        let text = table(&[("NAME", Align::Left), ("N", Align::Right)], &rows);
        assert_eq!(text, "NAME   N\na     10\nbbb    1\n");
    }

    #[test]
    fn bytes_are_short() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1536), "1.5 KiB");
        assert_eq!(human(10 << 30), "10 GiB");
        assert_eq!(human(u64::MAX), "16 EiB");
    }
}
