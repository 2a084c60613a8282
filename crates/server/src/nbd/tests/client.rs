//! A raw client: says exactly what a test wants, also what no good client would.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use wire::nbd::limits::GREETING_BYTES;
use wire::nbd::{
    ChunkKind, ClientFlags, Command, CommandFlags, OptionCode, OptionReplyKind, ReplyHeader,
    ReplyStyle, Request, decode, encode,
};

use super::rig::Rig;

pub(super) struct Client {
    pub(super) socket: UnixStream,
    pub(super) style: ReplyStyle,
    next_cookie: u64,
}

/// A reply to an option.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OptionReply {
    pub(super) kind: OptionReplyKind,
    pub(super) data: Vec<u8>,
}

/// A chunk, or a simple reply, with its payload.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) cookie: u64,
    /// 0, or the error number.
    pub(super) error: u32,
    pub(super) kind: Option<ChunkKind>,
    pub(super) is_done: bool,
    pub(super) payload: Vec<u8>,
}

impl Client {
    /// Connected and greeted.
    pub(super) fn connect(rig: &Rig) -> Client {
        Client::greeted(UnixStream::connect(&rig.socket).expect("connect"))
    }

    /// The same over TCP. Every socket has the calls that are used here, whatever its type is
    /// called.
    pub(super) fn connect_tcp(rig: &Rig) -> Client {
        let socket = TcpStream::connect(rig.tcp).expect("connect");
        Client::greeted(UnixStream::from(OwnedFd::from(socket)))
    }

    fn greeted(mut socket: UnixStream) -> Client {
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        let mut greeting = [0; GREETING_BYTES];
        socket.read_exact(&mut greeting).expect("a greeting");
        assert_eq!(greeting, encode::greeting());
        let flags = ClientFlags { fixed_newstyle: true, no_zeroes: true };
        socket.write_all(&encode::client_flags(flags)).expect("send");
        Client { socket, style: ReplyStyle::Simple, next_cookie: 1 }
    }

    /// In the transmission phase.
    pub(super) fn begin(rig: &Rig, export: &str, style: ReplyStyle) -> Client {
        Client::begin_with(rig, export, style, &[])
    }

    /// In the transmission phase, with metadata contexts.
    pub(super) fn begin_with(
        rig: &Rig,
        export: &str,
        style: ReplyStyle,
        contexts: &[&str],
    ) -> Client {
        Client::connect(rig).at_export(export, style, contexts)
    }

    /// Goes on to the transmission phase.
    pub(super) fn at_export(
        mut self,
        export: &str,
        style: ReplyStyle,
        contexts: &[&str],
    ) -> Client {
        let client = &mut self;
        client.choose_style(style);
        if !contexts.is_empty() {
            let mut data = Vec::new();
            encode::meta_request(export, contexts, &mut data);
            let replies = client.option(OptionCode::SET_META_CONTEXT, &data);
            assert_eq!(replies.len(), contexts.len() + 1, "{replies:?}");
        }
        let mut data = Vec::new();
        encode::info_request(export, &[], &mut data);
        let replies = client.option(OptionCode::GO, &data);
        assert_eq!(replies.last().expect("one").kind, OptionReplyKind::ACK, "{replies:?}");
        self
    }

    pub(super) fn choose_style(&mut self, style: ReplyStyle) {
        let code = match style {
            ReplyStyle::Simple => return,
            ReplyStyle::Structured => OptionCode::STRUCTURED_REPLY,
            ReplyStyle::Extended => OptionCode::EXTENDED_HEADERS,
        };
        let replies = self.option(code, &[]);
        assert_eq!(replies[0].kind, OptionReplyKind::ACK);
        self.style = style;
    }

    /// Sends an option; its replies up to the last.
    pub(super) fn option(&mut self, code: OptionCode, data: &[u8]) -> Vec<OptionReply> {
        let mut bytes = Vec::new();
        encode::option(code, data, &mut bytes);
        self.socket.write_all(&bytes).expect("send");
        let mut replies = Vec::new();
        loop {
            let reply = self.option_reply(code);
            let is_last = reply.kind.is_error() || reply.kind == OptionReplyKind::ACK;
            replies.push(reply);
            if is_last {
                return replies;
            }
        }
    }

    fn option_reply(&mut self, code: OptionCode) -> OptionReply {
        let mut header = [0; 20];
        self.socket.read_exact(&mut header).expect("a reply");
        let word =
            |at: usize| u32::from_be_bytes(*header[at..].first_chunk().expect("within the header"));
        assert_eq!(word(8), code.0);
        let mut data = vec![0; word(16) as usize];
        self.socket.read_exact(&mut data).expect("its data");
        OptionReply { kind: OptionReplyKind(word(12)), data }
    }

    /// The header of a request with a new cookie.
    pub(super) fn request(&mut self, command: Command, offset: u64, length: u64) -> Request {
        let flags = match (command, self.style) {
            (Command::Write, ReplyStyle::Extended) => CommandFlags::PAYLOAD_LEN,
            _ => CommandFlags(0),
        };
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        Request { flags, command, cookie, offset, length_bytes: length }
    }

    pub(super) fn send(&mut self, request: &Request, payload: &[u8]) {
        let header = encode::request(request, self.style.headers());
        self.socket.write_all(header.as_bytes()).expect("send");
        self.socket.write_all(payload).expect("send");
    }

    /// Sends a request and, in the same piece, that nothing follows.
    pub(super) fn send_last(&mut self, request: &Request, payload: &[u8]) {
        let last = self.request(Command::Disconnect, 0, 0);
        let headers = self.style.headers();
        let header = |request| encode::request(request, headers);
        let all = [header(request).as_bytes(), payload, header(&last).as_bytes()].concat();
        self.socket.write_all(&all).expect("send");
    }

    /// Whether something was sent that was not received yet.
    pub(super) fn has_reply(&self) -> bool {
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        let received = rustix::net::recv(&self.socket, &mut [0; 1], flags);
        received.is_ok_and(|received| received.0 > 0)
    }

    /// The cookie of the simple reply that comes next.
    pub(super) fn peek_cookie(&self) -> u64 {
        let mut header = [0; 16];
        let mut count = 0;
        while count < header.len() {
            let flags = rustix::net::RecvFlags::PEEK;
            let received = rustix::net::recv(&self.socket, &mut header, flags).expect("a reply");
            assert!(received.0 > 0, "a reply comes");
            count = received.0;
        }
        u64::from_be_bytes(*header.last_chunk().expect("a header ends with it"))
    }

    /// Receives one reply or chunk; `read_bytes` follow a simple reply that tells of success.
    pub(super) fn reply(&mut self, read_bytes: usize) -> Reply {
        let mut header = Vec::new();
        let (header, _) = loop {
            let mut byte = [0];
            self.socket.read_exact(&mut byte).expect("a reply");
            header.push(byte[0]);
            if let Some(reply) = decode::reply(&header).expect("a reply") {
                break reply;
            }
        };
        match header {
            ReplyHeader::Simple { error, cookie } => {
                let mut payload = vec![0; if error == 0 { read_bytes } else { 0 }];
                self.socket.read_exact(&mut payload).expect("data");
                Reply { cookie, error, kind: None, is_done: true, payload }
            }
            ReplyHeader::Chunk { done, kind, cookie, length_bytes, .. } => {
                let mut payload = vec![0; length_bytes as usize];
                self.socket.read_exact(&mut payload).expect("a payload");
                let error = match kind {
                    ChunkKind::ERROR => {
                        u32::from_be_bytes(*payload.first_chunk().expect("an error number"))
                    }
                    _ => 0,
                };
                Reply { cookie, error, kind: Some(kind), is_done: done, payload }
            }
        }
    }

    /// Sends a request and receives its one reply; the error number.
    pub(super) fn ask(&mut self, command: Command, offset: u64, payload: &[u8]) -> u32 {
        self.ask_for(command, offset, payload.len() as u64, payload)
    }

    /// The same for a range.
    pub(super) fn ask_for(
        &mut self,
        command: Command,
        offset: u64,
        length: u64,
        payload: &[u8],
    ) -> u32 {
        let request = self.request(command, offset, length);
        self.send(&request, payload);
        let reply = self.reply(0);
        assert_eq!(reply.cookie, request.cookie);
        assert!(reply.is_done);
        reply.error
    }

    /// Reads a range.
    pub(super) fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        let request = self.request(Command::Read, offset, length as u64);
        self.send(&request, &[]);
        let reply = self.reply(length);
        assert_eq!(reply.cookie, request.cookie);
        assert!(reply.is_done);
        data_of(reply, offset, length)
    }

    /// Whether the server closed the connection, and did not reset it.
    pub(super) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        self.socket.read_to_end(&mut rest).is_ok()
    }
}

/// Closes a socket so that its peer finds it reset.
pub(super) fn reset(client: Client) {
    let linger = Some(Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&client.socket, linger).expect("set");
    drop(client);
}

/// The bytes that a reply to READ stands for.
pub(super) fn data_of(reply: Reply, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
    let Reply { error, kind, payload, .. } = reply;
    match kind {
        _ if error != 0 => Err(error),
        None => Ok(payload),
        Some(ChunkKind::NONE) => Ok(Vec::new()),
        Some(ChunkKind::OFFSET_DATA) => {
            assert_eq!(payload[..8], offset.to_be_bytes());
            assert_eq!(payload.len(), 8 + length);
            Ok(payload[8..].to_vec())
        }
        Some(ChunkKind::OFFSET_HOLE) => {
            assert_eq!(payload[..8], offset.to_be_bytes());
            assert_eq!(payload[8..], (length as u32).to_be_bytes());
            Ok(vec![0; length])
        }
        Some(other) => panic!("{other:?} in answer to READ"),
    }
}
