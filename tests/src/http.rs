//! A tiny HTTP/1.1 client over a unix socket or TCP: one request for each connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// How long an answer may take. Far above what any answer should take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where to send requests.
#[derive(Clone, Debug)]
pub struct Http {
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// A connection to either.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON; null when there is none.
    pub fn json(&self) -> Result<Value> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body)
            .with_context(|| format!("not JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The `next` of the following page, from the Link header.
    #[must_use]
    pub fn next_page(&self) -> Option<String> {
        let link = self.header("link")?;
        let target = link.split(',').find(|part| part.contains("rel=\"next\""))?;
        let query = target.split(['<', '>']).nth(1)?.split_once('?')?.1;
        query.split('&').find_map(|pair| pair.strip_prefix("next=")).map(str::to_owned)
    }
}

impl Http {
    /// A client of the server that listens at `socket`.
    #[must_use]
    pub fn new(socket: &Path) -> Http {
        Http { place: Place::Unix(socket.to_owned()) }
    }

    /// A client of whatever listens at an address.
    #[must_use]
    pub fn tcp(address: SocketAddr) -> Http {
        Http { place: Place::Tcp(address) }
    }

    fn connect(&self) -> Result<Box<dyn Stream>> {
        Ok(match &self.place {
            Place::Unix(socket) => {
                let stream = UnixStream::connect(socket);
                let stream = stream.with_context(|| format!("connect to {}", socket.display()))?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address);
                let stream = stream.with_context(|| format!("connect to {address}"))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        })
    }

    /// Sends raw bytes as the body, with this content type.
    pub fn send(&self, method: &str, target: &str, kind: &str, body: &[u8]) -> Result<Answer> {
        let mut stream = self.connect()?;
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
        head.push_str("Connection: close\r\n");
        if !body.is_empty() {
            head.push_str(&format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        // A server that has refused the body already need not read it: its answer counts.
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut raw = Vec::new();
        let read = read_answer(&mut stream, &mut raw);
        if raw.is_empty() {
            sent.and(read.map(drop)).with_context(|| format!("answer to {method} {target}"))?;
        }
        parse(&raw).with_context(|| format!("answer to {method} {target}"))
    }

    /// Sends a request with a JSON body or none.
    pub fn call(&self, method: &str, target: &str, body: Option<&Value>) -> Result<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.send(method, target, "application/json", body.as_bytes())
    }

    /// The JSON answer of a request that must succeed.
    pub fn expect(&self, method: &str, target: &str, body: Option<&Value>) -> Result<Value> {
        let answer = self.call(method, target, body)?;
        ensure!(
            (200..300).contains(&answer.status),
            "{method} {target} {}: {} {}",
            body.map(Value::to_string).unwrap_or_default(),
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
        answer.json()
    }

    /// The JSON answer of a GET that must succeed.
    pub fn get(&self, target: &str) -> Result<Value> {
        self.expect("GET", target, None)
    }
}

/// A query value with everything escaped that is not plainly harmless.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Reads an answer: to the length that it says, or to the end. Some servers leave the connection
/// open though they were asked not to.
fn read_answer(stream: &mut impl Read, raw: &mut Vec<u8>) -> std::io::Result<()> {
    let mut part = [0; 16 << 10];
    while !is_whole(raw) {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => raw.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether an answer has all the bytes that it says it has.
fn is_whole(raw: &[u8]) -> bool {
    let Some(end) = raw.windows(4).position(|w| w == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&raw[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok());
    length.is_some_and(|length| raw.len() >= end + 4 + length)
}

fn parse(raw: &[u8]) -> Result<Answer> {
    let end = raw.windows(4).position(|w| w == b"\r\n\r\n").context("no end of the headers")?;
    let head = std::str::from_utf8(&raw[..end])?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status line")?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut answer = Answer { status: status.parse()?, headers, body: raw[end + 4..].to_vec() };
    if answer.header("transfer-encoding").is_some_and(|v| v.contains("chunked")) {
        answer.body = join_chunks(&answer.body)?;
    } else if let Some(length) = answer.header("content-length") {
        let length: usize = length.parse()?;
        ensure!(answer.body.len() == length, "{} of {length} bytes came", answer.body.len());
    }
    Ok(answer)
}

fn join_chunks(mut raw: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = raw.windows(2).position(|w| w == b"\r\n").context("no chunk size")?;
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..end])?.trim(), 16)?;
        raw = &raw[end + 2..];
        if size == 0 {
            return Ok(body);
        }
        if raw.len() < size + 2 {
            bail!("a chunk of {size} bytes was cut off");
        }
        body.extend_from_slice(&raw[..size]);
        raw = &raw[size + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::{is_whole, parse};

    #[test]
    fn an_answer_in_chunks_is_joined_and_its_next_page_found() {
        let raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\
            Link: </x?limit=1&next=8192>; rel=\"next\"\r\n\r\n2\r\n[1\r\n1\r\n]\r\n0\r\n\r\n";
        let answer = parse(raw).expect("an answer");
        assert_eq!(answer.json().expect("JSON"), serde_json::json!([1]));
        assert_eq!(answer.next_page().as_deref(), Some("8192"));
    }

    #[test]
    fn an_answer_is_read_to_the_length_that_it_says() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        assert!(is_whole(whole));
        assert!(!is_whole(&whole[..whole.len() - 1]) && !is_whole(&whole[..20]));
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\n\r\nabc"), "to the end");
    }

    #[test]
    fn a_short_body_is_an_error() {
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc").is_err());
    }
}
