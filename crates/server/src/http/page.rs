//! The web page: files that are built in, how they are sent, and which paths they have.
//!
//! 1. The files say nothing of this server, so anybody who reaches it may have them. All data is
//!    asked for by calls of the API, which need the token over TCP.
//! 2. The policy lets the page run, show and ask for nothing that is not this server's.
//! 3. A browser asks each time whether a file is still the same (its `ETag` is its checksum): no
//!    page outlives the server that it belongs to.
//!
//! It knows nothing of what the files do.

use std::sync::OnceLock;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use crc_fast::{CrcAlgorithm, checksum};
use miniz_oxide::deflate::compress_to_vec;

/// How hard a file is compressed, once: of 10.
const GZIP_LEVEL: u8 = 9;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// A file of the page.
struct File {
    /// Where it is below `ui`.
    name: &'static str,
    bytes: &'static [u8],
    gzip: OnceLock<Bytes>,
    tag: OnceLock<HeaderValue>,
}

macro_rules! files {
    ($($name:literal)*) => {
        [$(File {
            name: $name,
            bytes: include_bytes!(concat!("../../../../ui/", $name)),
            gzip: OnceLock::new(),
            tag: OnceLock::new(),
        }),*]
    };
}

/// All files, by their names.
static FILES: [File; 27] = files![
    "app.css"
    "icon.svg"
    "index.html"
    "js/api.js"
    "js/audit.js"
    "js/changes.js"
    "js/controls.js"
    "js/dialogs.js"
    "js/drawing.js"
    "js/html.js"
    "js/jobs.js"
    "js/live.js"
    "js/main.js"
    "js/moment.js"
    "js/overview.js"
    "js/pool.js"
    "js/route.js"
    "js/schedules.js"
    "js/show.js"
    "js/tables.js"
    "js/timeline.js"
    "js/view.js"
    "js/volume.js"
    "vendor/LICENSES"
    "vendor/hooks.mjs"
    "vendor/htm.mjs"
    "vendor/preact.mjs"
];

impl File {
    /// Where it is served, without the slash: the page itself at the top.
    fn place(&self) -> &'static str {
        if self.name == "index.html" { "" } else { self.name }
    }

    fn media_type(&self) -> &'static str {
        match self.name.rsplit_once('.') {
            Some((_, "html")) => "text/html; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            None => "text/plain; charset=utf-8",
            Some(_) => "text/javascript; charset=utf-8",
        }
    }

    /// Its bytes in the form that gzip has: RFC 1952.
    fn gzip(&self) -> Bytes {
        let make = || {
            let mut all = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
            all.extend(compress_to_vec(self.bytes, GZIP_LEVEL));
            let sum = checksum(CrcAlgorithm::Crc32IsoHdlc, self.bytes);
            all.extend(u32::try_from(sum).expect("32 bits").to_le_bytes());
            all.extend(u32::try_from(self.bytes.len()).expect("a small file").to_le_bytes());
            Bytes::from(all)
        };
        self.gzip.get_or_init(make).clone()
    }

    fn tag(&self) -> HeaderValue {
        let make = || {
            let sum = checksum(CrcAlgorithm::Crc32IsoHdlc, self.bytes);
            let text = format!("\"{:x}-{sum:08x}\"", self.bytes.len());
            HeaderValue::try_from(text).expect("digits in quotes")
        };
        self.tag.get_or_init(make).clone()
    }

    fn answer(&self, asked: &HeaderMap) -> Response {
        let mut response = if is_known(asked, &self.tag()) {
            StatusCode::NOT_MODIFIED.into_response()
        } else if takes_gzip(asked) {
            ([(CONTENT_ENCODING, "gzip")], self.gzip()).into_response()
        } else {
            Bytes::from_static(self.bytes).into_response()
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_type()));
        headers.insert(ETAG, self.tag());
        for (name, value) in [
            (CACHE_CONTROL, "no-cache"),
            (VARY, "accept-encoding"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Whether a path is one of the page.
pub(super) fn has(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|place| FILES.iter().any(|file| file.place() == place))
}

/// The routes of all files.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| {
        let answer = move |request: Request| async move { file.answer(request.headers()) };
        router.route(&format!("/{}", file.place()), get(answer))
    })
}

/// Whether the browser has these bytes already.
fn is_known(asked: &HeaderMap, tag: &HeaderValue) -> bool {
    let known = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let bare = |text: &str| text.trim().trim_start_matches("W/").to_owned();
    let tag = tag.to_str().expect("ASCII");
    known.flat_map(|value| value.split(',')).any(|one| bare(one) == tag || one.trim() == "*")
}

/// Whether the browser takes gzip, of whatever quality but 0.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let wishes = asked.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    wishes.flat_map(|value| value.split(',')).any(|wish| {
        let mut parts = wish.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case("gzip"));
        let is_refused = |part: &str| {
            part.strip_prefix("q=").is_some_and(|q| q.parse().is_ok_and(|q: f32| q <= 0.0))
        };
        is_gzip && !parts.any(is_refused)
    })
}

#[cfg(test)]
mod tests;
