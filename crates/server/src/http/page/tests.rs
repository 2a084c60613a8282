//! The table of files against the folder, the headers, and how large all of it is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use axum::body::to_bytes;
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use miniz_oxide::inflate::decompress_to_vec;

use super::{FILES, has, is_known, takes_gzip};

/// The most that the whole page may come to, compressed.
const BYTES_MAX: usize = 80 << 10;
/// Lines of a file of our own.
const LINES_MAX: usize = 300;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ui")
}

fn names_below(folder: &Path, prefix: &str, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("the folder of the page") {
        let entry = entry.expect("an entry");
        let name = format!("{prefix}{}", entry.file_name().to_str().expect("a plain name"));
        if entry.file_type().expect("a type").is_dir() {
            names_below(&entry.path(), &format!("{name}/"), names);
        } else {
            names.insert(name);
        }
    }
}

fn headers(name: axum::http::HeaderName, value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
}

#[test]
fn the_table_is_the_folder_in_its_order_and_every_file_as_it_is() {
    let mut there = BTreeSet::new();
    names_below(&folder(), "", &mut there);
    let table: Vec<&str> = FILES.iter().map(|file| file.name).collect();
    assert_eq!(table, there.iter().map(String::as_str).collect::<Vec<_>>());
    for file in &FILES {
        let bytes = std::fs::read(folder().join(file.name)).expect("read");
        assert!(bytes == file.bytes, "{} is not what was built in", file.name);
        assert!(has(&format!("/{}", file.place())), "{}", file.name);
    }
    for other in ["/index.html", "/js", "/api/v1/volumes", "//app.css", "/vendor", "", "//"] {
        assert!(!has(other), "{other}");
    }
}

#[test]
fn all_modules_are_named_by_the_page_and_none_that_is_not_there() {
    let page = std::str::from_utf8(FILES[2].bytes).expect("text");
    let named: BTreeSet<&str> = page
        .split('"')
        .filter(|text| text.starts_with('/'))
        .map(|text| text.trim_start_matches('/'))
        .collect();
    let alone = ["index.html", "vendor/LICENSES"];
    let table: BTreeSet<&str> =
        FILES.iter().map(|file| file.name).filter(|name| !alone.contains(name)).collect();
    assert_eq!(named, table, "each is asked for at once, not one after the other");
}

#[test]
fn the_whole_page_is_small_and_our_own_files_are_short() {
    let total: usize = FILES.iter().map(|file| file.gzip().len()).sum();
    println!("{total} bytes compressed, of {}", FILES.iter().map(|f| f.bytes.len()).sum::<usize>());
    assert!(total <= BYTES_MAX, "{total} bytes");
    for file in FILES.iter().filter(|file| file.name.starts_with("js/")) {
        let text = std::str::from_utf8(file.bytes).expect("text");
        assert!(text.lines().count() <= LINES_MAX, "{} is long: what is it two of?", file.name);
        assert!(text.starts_with("// "), "{} does not say what it is", file.name);
        assert!(!text.contains("innerHTML"), "{}: the policy lets nothing write HTML", file.name);
    }
}

#[tokio::test]
async fn files_are_sent_as_they_are_or_compressed_with_a_policy_and_a_tag() {
    for file in &FILES {
        let plain = file.answer(&HeaderMap::new());
        assert_eq!(plain.status(), StatusCode::OK);
        assert!(plain.headers().get(CONTENT_ENCODING).is_none());
        let policy = plain.headers()[CONTENT_SECURITY_POLICY].to_str().expect("text").to_owned();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        let tag = plain.headers()[ETAG].clone();
        let body = to_bytes(plain.into_body(), 1 << 20).await.expect("a body");
        assert_eq!(body, file.bytes);

        let packed = file.answer(&headers(ACCEPT_ENCODING, "br, gzip;q=0.8"));
        assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip");
        let body = to_bytes(packed.into_body(), 1 << 20).await.expect("a body");
        assert_eq!(body[..3], [0x1f, 0x8b, 8]);
        let (packed, ends) = body[10..].split_at(body.len() - 18);
        assert_eq!(decompress_to_vec(packed).expect("deflated"), file.bytes);
        assert_eq!(ends[4..], (file.bytes.len() as u32).to_le_bytes());

        let mut asked = HeaderMap::new();
        asked.insert(IF_NONE_MATCH, tag);
        let known = file.answer(&asked);
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
        let body = to_bytes(known.into_body(), 1 << 20).await.expect("a body");
        assert!(body.is_empty());
    }
    let page = FILES[2].answer(&HeaderMap::new());
    assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
}

#[test]
fn wishes_of_browsers_are_read() {
    for (wish, takes) in [
        ("gzip", true),
        ("GZIP", true),
        ("deflate, gzip;q=0.5", true),
        ("gzip;q=0", false),
        ("gzip; q=0.0", false),
        ("br", false),
        ("xgzip", false),
    ] {
        assert_eq!(takes_gzip(&headers(ACCEPT_ENCODING, wish)), takes, "{wish}");
    }
    let tag = HeaderValue::from_static("\"5-a\"");
    for (known, is) in
        [("\"5-a\"", true), ("\"x\", W/\"5-a\"", true), ("*", true), ("\"5\"", false)]
    {
        assert_eq!(is_known(&headers(IF_NONE_MATCH, known), &tag), is, "{known}");
    }
}
