//! Rust text with comments and strings blanked out, and which of its lines are test code.
//!
//! Invariant: `text` has as many lines, each as long, as the file, so that a place in one is a
//! place in the other. It does not know Rust's grammar, only where comments, strings and characters
//! begin and end.

/// Blanked code.
pub struct Code {
    /// The text; blanks where there were comments, and between the quotes of strings.
    pub text: String,
    /// For each line, whether it lies in a `#[cfg(test)]` module.
    in_tests: Vec<bool>,
}

impl Code {
    /// Blanks comments and strings of a file.
    pub fn new(file: &str) -> Code {
        let text = blank(file);
        let in_tests = test_lines(&text);
        Code { text, in_tests }
    }

    /// Whether a line (from 1) lies in a test module.
    pub fn is_test_line(&self, line: usize) -> bool {
        line.checked_sub(1).and_then(|index| self.in_tests.get(index)).copied().unwrap_or(false)
    }

    /// Number and text of each line, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Lines before the first test module.
    pub fn production_lines(&self) -> usize {
        self.in_tests.iter().filter(|&&in_tests| !in_tests).count()
    }
}

fn blank(file: &str) -> String {
    let bytes = file.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (keep, end) = token(bytes, at);
        for (index, &byte) in bytes.iter().enumerate().take(end).skip(at) {
            let is_edge = index == at || index + 1 == end;
            let shown = keep == Keep::All || byte == b'\n' || (keep == Keep::Edges && is_edge);
            out.push(if shown { byte } else { b' ' });
        }
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[derive(PartialEq)]
enum Keep {
    All,
    Edges,
    Nothing,
}

/// What begins at `at`, and where it ends.
fn token(bytes: &[u8], at: usize) -> (Keep, usize) {
    let rest = &bytes[at..];
    let after_name = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    match rest {
        [b'/', b'/', ..] => (Keep::Nothing, at + length_until(rest, b"\n")),
        [b'/', b'*', ..] => (Keep::Nothing, at + comment_length(rest)),
        [b'"', ..] => (Keep::Edges, at + string_length(rest)),
        [b'r', b'"' | b'#', ..] if !after_name => match raw_string_length(rest) {
            Some(length) => (Keep::Edges, at + length),
            None => (Keep::All, at + 1),
        },
        [b'\'', b'\\', ..] => (Keep::Edges, at + 2 + char_end(&rest[2..])),
        [b'\'', _, b'\'', ..] => (Keep::Edges, at + 3),
        [b'\'', first, ..] if *first >= 0x80 => (Keep::Edges, at + 1 + char_end(&rest[1..])),
        _ => (Keep::All, at + 1),
    }
}

fn length_until(rest: &[u8], end: &[u8]) -> usize {
    rest.windows(end.len()).position(|window| window == end).unwrap_or(rest.len())
}

fn char_end(rest: &[u8]) -> usize {
    // The character after a backslash may itself be a quote.
    let skipped = rest.len().min(1);
    (skipped + length_until(&rest[skipped..], b"'") + 1).min(rest.len())
}

fn comment_length(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at + 1 < rest.len() {
        match &rest[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string_length(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let start = 2 + hashes;
    Some((start + length_until(&rest[start..], &end) + end.len()).min(rest.len()))
}

fn test_lines(code: &str) -> Vec<bool> {
    let mut in_tests = vec![false; code.lines().count()];
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let start = from + found;
        let end = block_end(code, start);
        let first = code[..start].matches('\n').count();
        let last = code[..end].matches('\n').count();
        for line in in_tests.iter_mut().take(last + 1).skip(first) {
            *line = true;
        }
        from = end.max(start + 1);
    }
    in_tests
}

/// Where the item at `start` ends: at its closing brace, or at its semicolon.
pub fn block_end(code: &str, start: usize) -> usize {
    let mut depth = 0_usize;
    let mut nesting = 0_usize;
    for (index, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => nesting += 1,
            b')' | b']' => nesting = nesting.saturating_sub(1),
            b';' if depth == 0 && nesting == 0 => return index + 1,
            b'{' => depth += 1,
            b'}' if depth <= 1 => return index + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}
