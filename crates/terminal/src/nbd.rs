//! The client's side of an NBD connection: one export, simple replies.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use anyhow::Context;
use wire::nbd::decode;
use wire::nbd::encode;
use wire::nbd::{
    ClientFlags, Command, CommandFlags, HeaderStyle, OptionCode, OptionReplyKind, ReplyHeader,
    Request, TransmissionFlags,
};

use crate::failure::Failure;

/// Zeros of this length, in bytes, become a hole.
pub const HOLE_BYTES: usize = 64 << 10;
const PORT: u16 = 10_809;
const GREETING_BYTES: usize = 18;
const OPTION_REPLY_BYTES: usize = 20;
/// The longest reply to an option: a message for people.
const OPTION_DATA_MAX: u32 = 64 << 10;

/// A socket of either family.
pub enum Socket {
    /// On this machine.
    Unix(UnixStream),
    /// Over the network.
    Tcp(TcpStream),
}

impl Socket {
    /// The same connection once more, for another thread.
    pub fn again(&self) -> io::Result<Socket> {
        match self {
            Socket::Unix(stream) => stream.try_clone().map(Socket::Unix),
            Socket::Tcp(stream) => stream.try_clone().map(Socket::Tcp),
        }
    }

    /// Ends the connection for both threads.
    pub fn end(&self) {
        let how = std::net::Shutdown::Both;
        // Ended already: all the better.
        let _ = match self {
            Socket::Unix(stream) => stream.shutdown(how),
            Socket::Tcp(stream) => stream.shutdown(how),
        };
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.read(buffer),
            Socket::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.write(bytes),
            Socket::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Unix(stream) => stream.flush(),
            Socket::Tcp(stream) => stream.flush(),
        }
    }
}

/// An export that is open.
pub struct Export {
    /// The connection.
    pub socket: Socket,
    /// Its size.
    pub size_bytes: u64,
    /// What it can do.
    pub flags: TransmissionFlags,
    /// What comes through the connection can no longer be told apart: nothing is read from it.
    is_lost: bool,
    /// A read that was asked for and whose reply was not looked at yet: from where, how much.
    ahead: Option<(u64, usize)>,
}

impl Export {
    /// Reads bytes.
    pub fn fetch(&mut self, offset: u64, bytes: &mut [u8]) -> anyhow::Result<()> {
        if self.ahead.take_if(|ahead| *ahead == (offset, bytes.len())).is_some() {
            self.answered(offset)?;
        } else {
            self.ask(Command::Read, offset, bytes.len() as u64)?;
        }
        self.kept(|socket| socket.read_exact(bytes))
    }

    /// Asks for bytes that will be fetched next: the server reads them meanwhile.
    pub fn fetch_ahead(&mut self, offset: u64, length: usize) -> anyhow::Result<()> {
        self.settle()?;
        let head = header(Command::Read, false, 0, offset, length as u64);
        self.kept(|socket| socket.write_all(&head))?;
        self.ahead = Some((offset, length));
        Ok(())
    }

    /// Reads what was asked for ahead, and forgets it.
    fn settle(&mut self) -> anyhow::Result<()> {
        let Some((offset, length)) = self.ahead.take() else { return Ok(()) };
        if self.answered(offset).is_ok() {
            self.kept(|socket| socket.read_exact(&mut vec![0; length]))?;
        }
        Ok(())
    }

    /// Uses the connection, for good only once if that fails.
    fn kept<T>(&mut self, work: impl FnOnce(&mut Socket) -> io::Result<T>) -> anyhow::Result<T> {
        if self.is_lost {
            return Err(lost(io::ErrorKind::NotConnected.into()).into());
        }
        let done = work(&mut self.socket);
        self.is_lost = done.is_err();
        Ok(done.map_err(lost)?)
    }

    /// Writes bytes; runs of zeros become holes.
    pub fn write(&mut self, mut offset: u64, bytes: &[u8]) -> anyhow::Result<()> {
        self.settle()?;
        let is_zero = |part: &[u8]| part.iter().all(|&byte| byte == 0);
        let runs = bytes.chunks(HOLE_BYTES).collect::<Vec<_>>();
        for run in runs.chunk_by(|a, b| is_zero(a) == is_zero(b)) {
            let length: usize = run.iter().map(|part| part.len()).sum();
            if is_zero(run[0]) {
                self.ask(Command::WriteZeroes, offset, length as u64)?;
            } else {
                let head = header(Command::Write, false, 0, offset, length as u64);
                self.kept(|socket| {
                    socket.write_all(&head)?;
                    run.iter().try_for_each(|part| socket.write_all(part))
                })?;
                self.answered(offset)?;
            }
            offset += length as u64;
        }
        Ok(())
    }

    /// Sends a request without data, and awaits its reply.
    pub fn ask(&mut self, command: Command, offset: u64, length: u64) -> anyhow::Result<()> {
        self.settle()?;
        self.kept(|socket| socket.write_all(&header(command, false, 0, offset, length)))?;
        self.answered(offset)
    }

    fn answered(&mut self, offset: u64) -> anyhow::Result<()> {
        let reply = reply(&mut self.socket);
        self.is_lost = reply.is_err();
        match reply?.1 {
            0 => Ok(()),
            errno => {
                let why = io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(i32::MAX));
                Err(Failure::new(format!("the server failed at byte {offset}: {why}")).into())
            }
        }
    }
}

fn lost(error: io::Error) -> Failure {
    Failure::new(format!("the connection to the server is lost: {error}"))
}

/// Where an export is: `nbd+unix:///NAME?socket=PATH` or `nbd://HOST[:PORT]/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Behind a socket of this machine.
    Unix {
        /// Of the socket.
        path: String,
        /// The volume, or a moment of one.
        export: String,
    },
    /// Behind a port.
    Tcp {
        /// Name or address.
        host: String,
        /// The port.
        port: u16,
        /// The volume, or a moment of one.
        export: String,
    },
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let hint = || "give nbd+unix:///VOLUME?socket=PATH or nbd://HOST:PORT/VOLUME".to_owned();
        if let Some(rest) = text.strip_prefix("nbd+unix:///") {
            let (export, path) = rest.split_once("?socket=").ok_or_else(hint)?;
            return Ok(Address::Unix { path: decoded(path)?, export: decoded(export)? });
        }
        let rest = text.strip_prefix("nbd://").ok_or_else(hint)?;
        let (place, export) = rest.split_once('/').ok_or_else(hint)?;
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| hint())?),
            _ => (place, PORT),
        };
        if host.is_empty() {
            return Err(hint());
        }
        let host = host.trim_matches(['[', ']']).to_owned();
        Ok(Address::Tcp { host, port, export: decoded(export)? })
    }
}

/// A part of an address without its percent escapes.
fn decoded(text: &str) -> Result<String, String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let byte = piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| format!("%{piece}: two hexadecimal digits follow a %"))?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| format!("{text} is not UTF-8"))
}

impl Address {
    /// Connects and opens the export.
    pub fn open(&self) -> anyhow::Result<Export> {
        let (mut socket, export) = match self {
            Address::Unix { path, export } => {
                let stream = UnixStream::connect(path)
                    .with_context(|| format!("no NBD server at {path}"))?;
                (Socket::Unix(stream), export)
            }
            Address::Tcp { host, port, export } => {
                let stream = TcpStream::connect((host.as_str(), *port))
                    .with_context(|| format!("no NBD server at {host}:{port}"))?;
                stream.set_nodelay(true)?;
                (Socket::Tcp(stream), export)
            }
        };
        let (size_bytes, flags) = go(&mut socket, export)?;
        Ok(Export { socket, size_bytes, flags, is_lost: false, ahead: None })
    }
}

fn garbled() -> Failure {
    Failure::new("the server does not speak fixed newstyle NBD")
}

/// Opens an export with the option that says yes or why not.
fn go(socket: &mut Socket, export: &str) -> anyhow::Result<(u64, TransmissionFlags)> {
    let mut greeting = [0; GREETING_BYTES];
    socket.read_exact(&mut greeting)?;
    // The server's flags come last; anything before them is the same for every server.
    if greeting[..16] != encode::greeting()[..16] || greeting[17] & 1 == 0 {
        return Err(garbled().into());
    }
    let no_zeroes = greeting[17] & 2 != 0;
    let flags = ClientFlags { fixed_newstyle: true, no_zeroes };
    let mut message = encode::client_flags(flags).to_vec();
    let mut data = Vec::new();
    encode::info_request(export, &[], &mut data);
    encode::option(OptionCode::GO, &data, &mut message);
    socket.write_all(&message)?;
    let mut found = None;
    loop {
        let (kind, data) = option_reply(socket)?;
        match kind {
            OptionReplyKind::ACK => return found.ok_or_else(|| garbled().into()),
            // Item 0: the size and the flags.
            OptionReplyKind::INFO if data.len() == 12 && data[..2] == [0, 0] => {
                let size = u64::from_be_bytes(data[2..10].try_into()?);
                let flags = u16::from_be_bytes(data[10..12].try_into()?);
                found = Some((size, TransmissionFlags(flags)));
            }
            OptionReplyKind::INFO => {}
            _ => {
                let words = String::from_utf8_lossy(&data);
                return Err(Failure::new(format!("the server refuses {export}: {words}")).into());
            }
        }
    }
}

fn option_reply(socket: &mut Socket) -> anyhow::Result<(OptionReplyKind, Vec<u8>)> {
    let mut header = [0; OPTION_REPLY_BYTES];
    socket.read_exact(&mut header)?;
    let kind = u32::from_be_bytes(header[12..16].try_into()?);
    let length = u32::from_be_bytes(header[16..20].try_into()?);
    if length > OPTION_DATA_MAX {
        return Err(garbled().into());
    }
    let mut data = vec![0; length as usize];
    socket.read_exact(&mut data)?;
    Ok((OptionReplyKind(kind), data))
}

/// The header of a request.
pub fn header(command: Command, is_fua: bool, cookie: u64, offset: u64, length: u64) -> Vec<u8> {
    let flags = if is_fua { CommandFlags::FUA } else { CommandFlags(0) };
    let request = Request { flags, command, cookie, offset, length_bytes: length };
    encode::request(&request, HeaderStyle::Compact).as_bytes().to_vec()
}

/// The next simple reply: which request it is to, and its error number.
pub fn reply(socket: &mut impl Read) -> anyhow::Result<(u64, u32)> {
    const SIMPLE_BYTES: usize = 16;
    let mut bytes = [0; SIMPLE_BYTES];
    socket.read_exact(&mut bytes).context("the connection to the server is lost")?;
    match decode::reply(&bytes) {
        Ok(Some((ReplyHeader::Simple { error, cookie }, _))) => Ok((cookie, error)),
        _ => Err(Failure::new("the server sent what is no simple reply").into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use wire::nbd::TransmissionFlags;

    use super::{Address, Export, Socket};

    /// An export of bytes that are those of their offsets; the reply of one number is garbage.
    fn export(garbage: usize) -> Export {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        thread::spawn(move || {
            let mut request = [0; 28];
            for number in 0.. {
                if theirs.read_exact(&mut request).is_err() {
                    return;
                }
                let offset = request[23];
                let length = u32::from_be_bytes(request[24..28].try_into().expect("4 bytes"));
                let magic: u32 = if number == garbage { 1 } else { 0x6744_6698 };
                let mut reply = magic.to_be_bytes().to_vec();
                reply.extend([0; 4]);
                reply.extend(&request[8..16]);
                reply.extend(vec![offset; length as usize]);
                theirs.write_all(&reply).expect("sent");
            }
        });
        Export {
            socket: Socket::Unix(ours),
            size_bytes: 256,
            flags: TransmissionFlags(0),
            is_lost: false,
            ahead: None,
        }
    }

    fn fetched(export: &mut Export, offset: u64) -> Option<[u8; 3]> {
        let mut bytes = [0; 3];
        export.fetch(offset, &mut bytes).is_ok().then_some(bytes)
    }

    #[test]
    fn what_is_asked_for_ahead_is_what_is_fetched_next_or_nothing() {
        let mut export = export(usize::MAX);
        export.fetch_ahead(7, 3).expect("asked");
        assert_eq!(fetched(&mut export, 7), Some([7; 3]));
        export.fetch_ahead(8, 3).expect("asked");
        assert_eq!(fetched(&mut export, 20), Some([20; 3]));
        // Of another length it is another read.
        export.fetch_ahead(30, 2).expect("asked");
        assert_eq!(fetched(&mut export, 30), Some([30; 3]));
    }

    #[test]
    fn a_connection_that_failed_once_is_never_read_again() {
        let mut export = export(1);
        assert_eq!(fetched(&mut export, 1), Some([1; 3]));
        assert_eq!(fetched(&mut export, 2), None);
        // Its bytes would be those of the reply before.
        assert_eq!(fetched(&mut export, 3), None);
        assert!(export.fetch_ahead(4, 3).is_err());
    }

    #[test]
    fn addresses_are_those_of_nbd() {
        let tcp = |host: &str, port, export: &str| {
            Ok(Address::Tcp { host: host.to_owned(), port, export: export.to_owned() })
        };
        assert_eq!("nbd://h/v".parse(), tcp("h", 10_809, "v"));
        assert_eq!("nbd://h:7/v@-5min".parse(), tcp("h", 7, "v@-5min"));
        assert_eq!("nbd://[::1]:7/v".parse(), tcp("::1", 7, "v"));
        assert_eq!("nbd://[::1]/v".parse(), tcp("::1", 10_809, "v"));
        let unix = Address::Unix { path: "/a b.sock".to_owned(), export: "v@latest".to_owned() };
        assert_eq!("nbd+unix:///v%40latest?socket=/a%20b.sock".parse(), Ok(unix));
        for wrong in [
            "",
            "v",
            "nbd://",
            "nbd:///v",
            "nbd://h:x/v",
            "nbd+unix:///v",
            "nbd://h/%4",
            "http://h/v",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
