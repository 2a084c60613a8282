//! The handshake: options until an export is chosen, TLS on the way where it is wanted.
//!
//! Reads exactly the bytes of each option, so that nothing a client sent before TLS can be taken
//! for something sent under it. Work that may wait for a device (opening, listing) runs where it
//! may block.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;
use wire::nbd::decode::{self, Garbage, OptionError};
use wire::nbd::limits::{
    BLOCK_BYTES_MIN, BLOCK_BYTES_PREFERRED, OPTION_BYTES_MAX, OPTION_HEADER_BYTES,
    OPTION_SKIP_BYTES_MAX, PAYLOAD_BYTES_MAX,
};
use wire::nbd::{
    ClientFlags, ClientOption, InfoItem, InfoRequest, OptionCode, OptionHeader, OptionReplyKind,
    ReplyStyle, TransmissionFlags, encode,
};

use super::NbdContext;
use super::contexts::MetaContext;
use crate::Attachment;
use crate::serving::{Connection, Export, OpenError, attach, off_thread};

mod choice;

/// Most exports named in answer to one LIST.
const LIST_MAX: usize = 10_000;
/// Send a long list in parts of about so many bytes.
const LIST_PART_BYTES: usize = 64 << 10;

/// The choice of a client.
pub(super) struct Chosen {
    pub(super) export: Arc<dyn Export>,
    pub(super) style: ReplyStyle,
    pub(super) contexts: Vec<MetaContext>,
    /// Made before the client is told that it may begin.
    pub(super) attachment: Attachment,
    /// The client, for people: its address, and the subject of its certificate.
    pub(super) client: String,
}

/// Why a handshake came to no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("{0}")]
    Garbage(#[from] Garbage),
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("{0}")]
    Refused(String),
    #[error("the client took too long")]
    TimedOut,
}

impl From<tokio::time::error::Elapsed> for HandshakeError {
    fn from(_: tokio::time::error::Elapsed) -> HandshakeError {
        HandshakeError::TimedOut
    }
}

/// How to go on after an option.
enum Next {
    Option,
    StartTls,
    Begin(Chosen),
    End,
}

struct Handshake<'c> {
    context: &'c Arc<NbdContext>,
    connection: Connection,
    client: ClientFlags,
    /// The client, for people.
    peer: String,
    style: ReplyStyle,
    /// The last choice of SET_META_CONTEXT, and its export name.
    contexts: Option<(String, Vec<MetaContext>)>,
    stop: watch::Receiver<bool>,
    out: Vec<u8>,
}

/// Runs a handshake; `None` when the client ended it in order.
pub(super) async fn negotiate(
    connection: Connection,
    context: &Arc<NbdContext>,
    stop: watch::Receiver<bool>,
    peer: String,
) -> Result<Option<(Connection, Chosen)>, HandshakeError> {
    timeout(context.limits.handshake_whole, negotiate_slowly(connection, context, stop, peer))
        .await?
}

async fn negotiate_slowly(
    mut connection: Connection,
    context: &Arc<NbdContext>,
    stop: watch::Receiver<bool>,
    peer: String,
) -> Result<Option<(Connection, Chosen)>, HandshakeError> {
    let step = context.limits.handshake_step;
    connection.write_all(&encode::greeting()).await?;
    let mut flags = [0; 4];
    match timeout(step, connection.read_exact(&mut flags)).await? {
        // A look whether somebody is there: the usual way to see that a server is up.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let client = decode::client_flags(flags)?;
    if !client.fixed_newstyle {
        return Err(HandshakeError::Refused("the client does not speak fixed newstyle".into()));
    }
    let mut handshake = Handshake {
        context,
        connection,
        client,
        peer,
        style: ReplyStyle::Simple,
        contexts: None,
        stop,
        out: Vec::new(),
    };
    loop {
        match timeout(step, handshake.option()).await?? {
            Next::Option => {}
            Next::StartTls => handshake = timeout(step, handshake.start_tls()).await??,
            Next::Begin(chosen) => return Ok(Some((handshake.connection, chosen))),
            Next::End => return Ok(None),
        }
    }
}

impl Handshake<'_> {
    async fn start_tls(self) -> Result<Self, HandshakeError> {
        let config = self.context.tls.read().clone().expect("offered only with TLS");
        let connection = self.connection.start_tls(config).await?;
        let peer = match connection.client_subject() {
            Some(subject) => format!("{} {subject}", self.peer),
            None => self.peer,
        };
        // Nothing said before TLS counts.
        Ok(Handshake { connection, peer, style: ReplyStyle::Simple, contexts: None, ..self })
    }

    /// Receives an option and answers it.
    async fn option(&mut self) -> Result<Next, HandshakeError> {
        let mut header = [0; OPTION_HEADER_BYTES];
        match self.connection.read_exact(&mut header).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Next::End),
            other => other?,
        };
        let header = decode::option_header(&header)?;
        self.out.clear();
        if header.length_bytes > OPTION_BYTES_MAX {
            return self.skip(header).await;
        }
        let mut data = vec![0; header.length_bytes as usize];
        self.connection.read_exact(&mut data).await?;
        let next = match decode::option(header.code, &data) {
            Ok(option) => self.answer(header.code, option).await?,
            Err(_) if header.code == OptionCode::EXPORT_NAME => {
                return Err(HandshakeError::Refused("a malformed export name".into()));
            }
            Err(OptionError::Invalid(message)) => {
                self.refuse(header.code, OptionReplyKind::INVALID, message)
            }
            Err(OptionError::TooBig(message)) => {
                self.refuse(header.code, OptionReplyKind::TOO_BIG, message)
            }
        };
        self.connection.write_all(&self.out).await?;
        self.connection.flush().await?;
        Ok(next)
    }

    async fn skip(&mut self, header: OptionHeader) -> Result<Next, HandshakeError> {
        if header.length_bytes > OPTION_SKIP_BYTES_MAX || header.code == OptionCode::EXPORT_NAME {
            return Err(HandshakeError::Refused(format!(
                "an option of {} bytes",
                header.length_bytes
            )));
        }
        let mut rest = (&mut self.connection).take(u64::from(header.length_bytes));
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
        let next = self.refuse(header.code, OptionReplyKind::TOO_BIG, "more than 64 KiB of data");
        self.connection.write_all(&self.out).await?;
        Ok(next)
    }

    fn refuse(&mut self, code: OptionCode, kind: OptionReplyKind, message: &str) -> Next {
        encode::option_error(code, kind, message, &mut self.out);
        Next::Option
    }

    fn ack(&mut self, code: OptionCode) -> Next {
        encode::option_reply(code, OptionReplyKind::ACK, &[], &mut self.out);
        Next::Option
    }

    /// Whether this connection must go over to TLS before anything else.
    fn must_start_tls(&self) -> bool {
        self.context.tls.read().is_some() && self.connection.is_bare_tcp()
    }

    async fn answer(
        &mut self,
        code: OptionCode,
        option: ClientOption<'_>,
    ) -> Result<Next, HandshakeError> {
        let is_early = matches!(option, ClientOption::Abort | ClientOption::StartTls);
        if self.must_start_tls() && !is_early {
            if code == OptionCode::EXPORT_NAME {
                return Err(HandshakeError::Refused("the client does not use TLS".into()));
            }
            return Ok(self.refuse(code, OptionReplyKind::TLS_REQUIRED, "use TLS first"));
        }
        if *self.stop.borrow() && option != ClientOption::Abort {
            if code == OptionCode::EXPORT_NAME {
                return Err(HandshakeError::Refused("the server stops".into()));
            }
            return Ok(self.refuse(code, OptionReplyKind::SHUTDOWN, "the server stops"));
        }
        match option {
            ClientOption::Abort => {
                self.ack(code);
                Ok(Next::End)
            }
            ClientOption::StartTls => Ok(self.offer_tls(code)),
            ClientOption::List => self.list(code).await,
            ClientOption::ExportName(name) => self.begin_by_name(name).await,
            ClientOption::Info(info) => self.describe(code, &info).await,
            ClientOption::Go(info) => self.describe(code, &info).await,
            ClientOption::StructuredReply if self.style == ReplyStyle::Extended => {
                let kind = OptionReplyKind::EXTENDED_HEADERS_REQUIRED;
                Ok(self.refuse(code, kind, "extended headers are in use already"))
            }
            ClientOption::StructuredReply => {
                self.style = ReplyStyle::Structured;
                Ok(self.ack(code))
            }
            ClientOption::ExtendedHeaders => {
                self.style = ReplyStyle::Extended;
                Ok(self.ack(code))
            }
            ClientOption::ListMetaContext(meta) => self.list_contexts(code, &meta).await,
            ClientOption::SetMetaContext(meta) => self.set_contexts(code, &meta).await,
            ClientOption::Unknown(_) => {
                Ok(self.refuse(code, OptionReplyKind::UNSUPPORTED, "unknown option"))
            }
        }
    }

    fn offer_tls(&mut self, code: OptionCode) -> Next {
        if self.connection.is_tls() {
            return self.refuse(code, OptionReplyKind::INVALID, "TLS is in use already");
        }
        if !self.must_start_tls() {
            return self.refuse(code, OptionReplyKind::POLICY, "there is no TLS on this listener");
        }
        self.ack(code);
        Next::StartTls
    }

    async fn list(&mut self, code: OptionCode) -> Result<Next, HandshakeError> {
        let exports = Arc::clone(&self.context.exports);
        let listed = off_thread(move || exports.list(LIST_MAX)).await?;
        for export in &listed {
            encode::listed_export(&export.name, &export.description, &mut self.out);
            if self.out.len() >= LIST_PART_BYTES {
                self.connection.write_all(&self.out).await?;
                self.out.clear();
            }
        }
        Ok(self.ack(code))
    }

    async fn open(&self, name: &str) -> Result<Result<Arc<dyn Export>, OpenError>, io::Error> {
        let (exports, name) = (Arc::clone(&self.context.exports), name.to_owned());
        off_thread(move || exports.open(&name)).await
    }

    async fn begin_by_name(&mut self, name: &str) -> Result<Next, HandshakeError> {
        if self.style == ReplyStyle::Extended {
            return Err(HandshakeError::Refused("extended headers begin with GO".into()));
        }
        let opened = attach(self.context, name, &self.peer).await?;
        let (export, attachment) = opened.map_err(|e| HandshakeError::Refused(e.message))?;
        let flags = flags_for(&export, self.style, self.has_contexts(name));
        encode::export_name_answer(export.size_bytes(), flags, self.client, &mut self.out);
        Ok(Next::Begin(self.choose(export, attachment, name)))
    }

    /// Answers INFO and GO.
    async fn describe(
        &mut self,
        code: OptionCode,
        info: &InfoRequest<'_>,
    ) -> Result<Next, HandshakeError> {
        let opened = match code == OptionCode::GO {
            true => {
                attach(self.context, info.name, &self.peer).await?.map(|(e, held)| (e, Some(held)))
            }
            false => self.open(info.name).await?.map(|export| (export, None)),
        };
        let (export, attachment) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(self.refuse(code, OptionReplyKind::UNKNOWN, &error.message)),
        };
        let flags = flags_for(&export, self.style, self.has_contexts(info.name));
        self.describe_items(code, info, &export, flags);
        self.ack(code);
        Ok(match attachment {
            Some(attachment) => Next::Begin(self.choose(export, attachment, info.name)),
            None => Next::Option,
        })
    }

    /// Whether contexts were chosen for this very export name.
    fn has_contexts(&self, name: &str) -> bool {
        self.contexts.as_ref().is_some_and(|(same, found)| same == name && !found.is_empty())
    }

    fn describe_items(
        &mut self,
        code: OptionCode,
        info: &InfoRequest<'_>,
        export: &Arc<dyn Export>,
        flags: TransmissionFlags,
    ) {
        let item = InfoItem::Export { size_bytes: export.size_bytes(), flags };
        encode::info_item(code, item, &mut self.out);
        let wants = |item: u16| info.items.contains(&item);
        if wants(InfoItem::NAME) {
            encode::info_item(code, InfoItem::Name(export.name()), &mut self.out);
        }
        if wants(InfoItem::DESCRIPTION) {
            let text = export.description();
            encode::info_item(code, InfoItem::Description(&text), &mut self.out);
        }
        if wants(InfoItem::BLOCK_SIZE) {
            let item = InfoItem::BlockSize {
                min: BLOCK_BYTES_MIN,
                preferred: BLOCK_BYTES_PREFERRED,
                payload_max: PAYLOAD_BYTES_MAX,
            };
            encode::info_item(code, item, &mut self.out);
        }
    }

    /// The choice of an export, with the contexts that were chosen under the same name.
    fn choose(&mut self, export: Arc<dyn Export>, attachment: Attachment, name: &str) -> Chosen {
        let contexts = match self.contexts.take() {
            Some((same, contexts)) if same == name => contexts,
            _ => Vec::new(),
        };
        Chosen { export, style: self.style, contexts, attachment, client: self.peer.clone() }
    }
}

fn flags_for(export: &Arc<dyn Export>, style: ReplyStyle, has_contexts: bool) -> TransmissionFlags {
    use TransmissionFlags as Flags;
    let mut flags = Flags::HAS_FLAGS
        .with(Flags::FLUSH)
        .with(Flags::FUA)
        .with(Flags::MULTI_CONN)
        .with(Flags::CACHE);
    flags = if export.present_of().is_none() {
        flags.with(Flags::READ_ONLY)
    } else {
        flags.with(Flags::TRIM).with(Flags::WRITE_ZEROES).with(Flags::FAST_ZERO).with(Flags::RESIZE)
    };
    if style != ReplyStyle::Simple {
        flags = flags.with(Flags::DF);
    }
    if style == ReplyStyle::Extended && has_contexts {
        flags = flags.with(Flags::STATUS_PAYLOAD);
    }
    flags
}
