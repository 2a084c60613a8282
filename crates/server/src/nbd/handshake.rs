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
use units::Role;
use wire::nbd::decode::{self, Garbage, OptionError};
use wire::nbd::limits::{
    BLOCK_BYTES_MIN, BLOCK_BYTES_PREFERRED, OPTION_BYTES_MAX, OPTION_HEADER_BYTES,
    OPTION_SKIP_BYTES_MAX, PAYLOAD_BYTES_MAX,
};
use wire::nbd::{
    ClientFlags, ClientOption, InfoItem, InfoRequest, OptionCode, OptionHeader, OptionReplyKind,
    ReplyStyle, TransmissionFlags, encode,
};

use super::context::NbdContext;
use super::contexts::MetaContext;
use crate::Attachment;
use crate::serving::{Connection, Export, OpenError, attach, off_thread};
use crate::who::{Caller, Certificates};

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
    /// The client.
    pub(super) caller: Caller,
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

/// A refusal of an export.
type Refused = (OptionReplyKind, OpenError);

/// Said to a client whose certificate has the name of no token.
const UNKNOWN: &str = "no token has the name of your certificate";

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
    /// The client; none that may be let in.
    caller: Option<Caller>,
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
    let caller = match connection.peer_user() {
        Some(uid) => Caller::of_socket(uid, &context.access),
        None => Caller::of_nbd(&peer.as_str().into()),
    };
    let mut handshake = Handshake {
        context,
        caller: Some(caller),
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
        let address = self.peer.as_str().into();
        let config = self.context.tls.read().clone().expect("offered only with TLS");
        let connection = self.connection.start_tls(config).await?;
        let peer = match connection.client_subject() {
            Some(subject) => format!("{} {subject}", self.peer),
            None => self.peer,
        };
        let access = &self.context.access;
        let caller = match connection.has_certificate() {
            false if access.certificates == Certificates::Any => Some(Caller::of_nbd(&address)),
            false => None,
            true => {
                let (name, named) = (connection.client_name(), &self.context.token_named);
                Caller::of_certificate(name.as_deref(), named, access, &address)
            }
        };
        if caller.is_none() {
            tracing::warn!(client = peer, "no token has the name of the certificate");
        }
        // Nothing said before TLS counts.
        let (style, contexts) = (ReplyStyle::Simple, None);
        Ok(Handshake { connection, peer, caller, style, contexts, ..self })
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
        if self.caller.is_none() && option != ClientOption::Abort {
            if code == OptionCode::EXPORT_NAME {
                return Err(HandshakeError::Refused(UNKNOWN.into()));
            }
            return Ok(self.refuse(code, OptionReplyKind::POLICY, UNKNOWN));
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
        let caller = self.caller.as_ref();
        let is_seen = |name: &str| {
            let volume = name.split('@').next().unwrap_or_default();
            caller.is_some_and(|caller| caller.may(Role::Reader) && caller.sees(volume))
        };
        for export in listed.iter().filter(|export| is_seen(&export.name)) {
            encode::listed_export(&export.name, &export.description, &mut self.out);
            if self.out.len() >= LIST_PART_BYTES {
                self.connection.write_all(&self.out).await?;
                self.out.clear();
            }
        }
        Ok(self.ack(code))
    }

    /// Refuses what the client may not open; what it does not see is not there.
    fn check(&self, name: &str) -> Result<Caller, Refused> {
        let unknown = |error| (OptionReplyKind::UNKNOWN, error);
        let Some(caller) = &self.caller else {
            return Err((OptionReplyKind::POLICY, OpenError::new(UNKNOWN)));
        };
        if !caller.may(Role::Reader) {
            let text = format!("{} is {}, and reads no data", caller.who, caller.role);
            return Err((OptionReplyKind::POLICY, OpenError::new(text)));
        }
        if caller.sees_all() {
            return Ok(caller.clone());
        }
        match name.split('@').next().unwrap_or_default() {
            "" => Err(unknown(OpenError::new("name the volume that you want"))),
            volume if caller.sees(volume) => Ok(caller.clone()),
            volume => Err(unknown(volume::no_volume(volume).into())),
        }
    }

    async fn open(&self, name: &str) -> io::Result<Result<Arc<dyn Export>, Refused>> {
        if let Err(refused) = self.check(name) {
            return Ok(Err(refused));
        }
        let (exports, own) = (Arc::clone(&self.context.exports), name.to_owned());
        let opened = off_thread(move || exports.open(&own)).await?;
        Ok(opened.map_err(|error| self.told(error)))
    }

    /// An error as the client is told it: hints name origins of clones.
    fn told(&self, error: OpenError) -> Refused {
        let sees_all = self.caller.as_ref().is_some_and(Caller::sees_all);
        let message = match error.message.split_once("; ") {
            Some((message, _)) if !sees_all => message.to_owned(),
            _ => error.message,
        };
        (OptionReplyKind::UNKNOWN, OpenError { message, ..error })
    }

    async fn attach(
        &self,
        name: &str,
    ) -> io::Result<Result<(Arc<dyn Export>, Attachment, Caller), Refused>> {
        let caller = match self.check(name) {
            Ok(caller) => caller,
            Err(refused) => return Ok(Err(refused)),
        };
        let opened = attach(self.context, name, &self.peer).await?;
        Ok(opened.map(|(export, held)| (export, held, caller)).map_err(|error| self.told(error)))
    }

    async fn begin_by_name(&mut self, name: &str) -> Result<Next, HandshakeError> {
        if self.style == ReplyStyle::Extended {
            return Err(HandshakeError::Refused("extended headers begin with GO".into()));
        }
        let opened = self.attach(name).await?;
        let (export, held, caller) = opened.map_err(|(_, e)| HandshakeError::Refused(e.message))?;
        let flags = flags_for(&export, &caller, self.style, self.has_contexts(name));
        encode::export_name_answer(export.size_bytes(), flags, self.client, &mut self.out);
        Ok(Next::Begin(self.choose(export, (held, caller), name)))
    }

    /// Answers INFO and GO.
    async fn describe(
        &mut self,
        code: OptionCode,
        info: &InfoRequest<'_>,
    ) -> Result<Next, HandshakeError> {
        let opened = match code == OptionCode::GO {
            true => {
                let opened = self.attach(info.name).await?;
                opened.map(|(export, held, caller)| (export, caller.clone(), Some((held, caller))))
            }
            false => {
                let caller = self.caller.clone();
                let opened = self.open(info.name).await?;
                opened.map(|export| (export, caller.expect("checked to open"), None))
            }
        };
        let (export, caller, attachment) = match opened {
            Ok(opened) => opened,
            Err((kind, error)) => return Ok(self.refuse(code, kind, &error.message)),
        };
        let flags = flags_for(&export, &caller, self.style, self.has_contexts(info.name));
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
    fn choose(
        &mut self,
        export: Arc<dyn Export>,
        (attachment, caller): (Attachment, Caller),
        name: &str,
    ) -> Chosen {
        let contexts = match self.contexts.take() {
            Some((same, contexts)) if same == name => contexts,
            _ => Vec::new(),
        };
        let client = self.peer.clone();
        Chosen { export, style: self.style, contexts, attachment, client, caller }
    }
}

fn flags_for(
    export: &Arc<dyn Export>,
    caller: &Caller,
    style: ReplyStyle,
    has_contexts: bool,
) -> TransmissionFlags {
    use TransmissionFlags as Flags;
    let mut flags = Flags::HAS_FLAGS
        .with(Flags::FLUSH)
        .with(Flags::FUA)
        .with(Flags::MULTI_CONN)
        .with(Flags::CACHE);
    flags = if export.present_of().is_none() || !caller.may(Role::Operator) {
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
