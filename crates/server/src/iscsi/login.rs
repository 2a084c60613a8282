//! The login of a connection: security, operational parameters, and the target that is opened.
//!
//! ```text
//! Security -- T --> Operational -- T --> Full    (step; a request that is refused ends it)
//! ```
//! Reads exactly the bytes of each PDU. Until the target is opened nothing of what an initiator
//! says is believed, and little of it is kept: 32 requests, 64 KiB of text, in 15 s.

use std::io;
use std::sync::Arc;

use env::{Clock, RealClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use units::Role;
use volume::{Access, Credential};
use wire::iscsi::frame::{Frame, PduError};
use wire::iscsi::limits::{
    BHS_BYTES, DATA_SEGMENT_BYTES_MAX, LOGIN_SEGMENT_BYTES_MAX, TEXT_BYTES_MAX,
};
use wire::iscsi::negotiation::{Answer, Negotiation, Parameters, Wishes};
use wire::iscsi::text::{self, Pair};
use wire::iscsi::{
    Digests, Isid, LoginRequest, LoginResponse, LoginStatus, Numbers, Request, Serial, Stage,
    decode, encode, names,
};

use super::bells::OpenUnit;
use super::chap::{self, Authentication, Need, Proof};
use super::context::{IscsiContext, WINDOW};
use super::sessions::{Key, Party, Registered};
use super::targets::{self, Asker, Known, Target, Who};
use crate::serving::Connection;
use crate::who::Caller;

/// Requests of a login.
const REQUESTS_MAX: usize = 32;

/// An initiator that is logged in.
pub(super) struct Login {
    pub(super) initiator: String,
    pub(super) isid: Isid,
    /// None in a session that only asks for targets.
    pub(super) target: Option<Target>,
    pub(super) registered: Option<Registered>,
    /// The initiator of a session that only asks for targets.
    pub(super) asker: Option<Asker>,
    /// Somebody whom a token let in; none is anybody whom the target lets in by itself.
    pub(super) caller: Option<Caller>,
    pub(super) negotiation: Negotiation,
    pub(super) parameters: Parameters,
    pub(super) stat_sn: Serial,
    pub(super) exp_cmd_sn: Serial,
}

/// Why a login came to no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoginError {
    #[error("{0}")]
    Pdu(#[from] PduError),
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("{why} (status {:#06x})", status.0)]
    Refused { status: LoginStatus, why: String },
    #[error("the initiator took too long")]
    TimedOut,
}

fn refused<T>(status: LoginStatus, why: impl Into<String>) -> Result<T, LoginError> {
    Err(LoginError::Refused { status, why: why.into() })
}

/// Runs a login; `None` when the initiator ended the connection before it began one.
pub(super) async fn log_in(
    mut connection: Connection,
    context: &Arc<IscsiContext>,
    client: &str,
) -> Result<Option<(Connection, Login)>, LoginError> {
    let run = run(&mut connection, context, client);
    let done = match timeout(context.limits.handshake_whole, run).await {
        Ok(done) => done?,
        Err(_) => return Err(LoginError::TimedOut),
    };
    Ok(done.map(|login| (connection, login)))
}

/// A login under way.
struct State<'c> {
    context: &'c Arc<IscsiContext>,
    client: &'c str,
    stage: Stage,
    first: LoginRequest,
    stat_sn: Serial,
    /// The text of a request that goes on in the next.
    text: Vec<u8>,
    text_bytes: usize,
    names: Option<Names>,
    has_declared: bool,
    /// Others hear what is said here, and reach this address.
    is_exposed: bool,
}

/// The things that the first request says.
struct Names {
    initiator: String,
    target: Option<String>,
    negotiation: Negotiation,
    authentication: Authentication,
    /// The target, as it was known then.
    known: Known,
}

async fn run(
    connection: &mut Connection,
    context: &Arc<IscsiContext>,
    client: &str,
) -> Result<Option<Login>, LoginError> {
    let mut data = Vec::new();
    let is_exposed = context.is_exposed(connection.local_address());
    let Some(first) = receive(connection, &mut data).await? else { return Ok(None) };
    let mut state = State {
        context,
        client,
        stage: first.stage,
        first,
        stat_sn: first.exp_stat_sn,
        text: Vec::new(),
        text_bytes: 0,
        names: None,
        has_declared: false,
        is_exposed,
    };
    let mut request = first;
    for _ in 0..REQUESTS_MAX {
        let mut answer = Vec::new();
        let stepped = match state.step(&request, &data, &mut answer).await {
            Ok(next) if next == Some(Stage::FullFeature) => match state.finish().await {
                Ok(login) => {
                    let handle = login.registered.as_ref().map(|r| r.handle);
                    let handle = handle.unwrap_or_else(|| context.sessions.handle());
                    state.respond(connection, &request, next, handle, &answer).await?;
                    return Ok(Some(Login { stat_sn: state.stat_sn, ..login }));
                }
                Err(error) => Err(error),
            },
            other => other,
        };
        match stepped {
            Ok(next) => state.respond(connection, &request, next, 0, &answer).await?,
            Err(error) => {
                if let LoginError::Refused { status, why } = &error {
                    state.refuse(connection, &request, *status, why).await?;
                }
                return Err(error);
            }
        }
        data.clear();
        match receive(connection, &mut data).await? {
            Some(next) => request = next,
            None => return refused(LoginStatus::INITIATOR_ERROR, "the initiator went away"),
        }
    }
    refused(LoginStatus::INITIATOR_ERROR, "a login of too many requests")
}

/// Receives a request; `None` at the end of the stream.
async fn receive(
    connection: &mut Connection,
    data: &mut Vec<u8>,
) -> Result<Option<LoginRequest>, LoginError> {
    let mut bytes = vec![0; BHS_BYTES];
    match connection.read_exact(&mut bytes).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let frame = Frame::measure(&bytes, Digests::default(), LOGIN_SEGMENT_BYTES_MAX)?;
    let frame = frame.expect("a header without a digest is whole");
    bytes.resize(frame.total_bytes(), 0);
    connection.read_exact(&mut bytes[BHS_BYTES..]).await?;
    let pdu = frame.pdu(&bytes).expect("as many bytes as it has");
    data.extend_from_slice(pdu.data);
    match decode::request(pdu.bhs)? {
        Request::Login(request) => Ok(Some(request)),
        _ => Err(PduError::Protocol("not a login, before one has ended").into()),
    }
}

impl State<'_> {
    /// Takes up a request and says what to answer; the stage that begins.
    async fn step(
        &mut self,
        request: &LoginRequest,
        data: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<Option<Stage>, LoginError> {
        let first = &self.first;
        if (request.isid, request.tsih, request.cid, request.task_tag)
            != (first.isid, first.tsih, first.cid, first.task_tag)
            || request.stage != self.stage
        {
            return refused(LoginStatus::INITIATOR_ERROR, "a request of another login");
        }
        if request.version_min > 0 {
            return refused(LoginStatus::UNSUPPORTED_VERSION, "no version in common");
        }
        self.text_bytes += data.len();
        if self.text_bytes > TEXT_BYTES_MAX {
            return refused(LoginStatus::OUT_OF_RESOURCES, "a login of more than 64 KiB");
        }
        self.text.extend_from_slice(data);
        if request.continues {
            return Ok(None);
        }
        let text = std::mem::take(&mut self.text);
        let pairs = match text::parse(&text) {
            Ok(pairs) => pairs,
            Err(error) => return refused(LoginStatus::INITIATOR_ERROR, error.to_string()),
        };
        if self.names.is_none() {
            self.names = Some(self.begin(&pairs, answer).await?);
        }
        self.negotiate(&pairs, answer)?;
        let authentication = &self.names.as_ref().expect("taken up").authentication;
        if authentication.is_under_way() && self.stage == Stage::Security {
            // It goes on here, whatever the initiator wants.
            return Ok(None);
        }
        if request.next.is_some() || self.stage != Stage::Security {
            authentication.check().or_else(unproved)?;
        }
        if let Some(next) = request.next {
            self.stage = next;
        }
        Ok(request.next)
    }

    /// Takes up what only the first request says.
    async fn begin(&self, pairs: &[Pair<'_>], answer: &mut Vec<u8>) -> Result<Names, LoginError> {
        let Some(initiator) = text::value(pairs, "InitiatorName") else {
            return refused(LoginStatus::MISSING_PARAMETER, "InitiatorName is missing");
        };
        let wrong = |name: &str, error| {
            refused(LoginStatus::INITIATOR_ERROR, format!("{name:.64}: {error}"))
        };
        let initiator = names::fold_initiator(initiator).or_else(|e| wrong(initiator, e))?;
        let is_discovery = match text::value(pairs, "SessionType") {
            None | Some("Normal") => false,
            Some("Discovery") => true,
            Some(_) => return refused(LoginStatus::SESSION_TYPE, "no such type of session"),
        };
        let target = match text::value(pairs, "TargetName") {
            _ if is_discovery => None,
            Some(name) => Some(names::fold(name).or_else(|e| wrong(name, e))?),
            None => return refused(LoginStatus::MISSING_PARAMETER, "TargetName is missing"),
        };
        if self.first.tsih != 0 {
            return self.refuse_connection(&initiator, target.as_deref());
        }
        if !is_discovery {
            text::put("TargetPortalGroupTag", "1", answer);
        }
        let negotiation = Negotiation::new(Wishes::default(), is_discovery);
        let mut known = Known::default();
        let has_tokens = (self.context.tokens.any)();
        let wanted = match &target {
            Some(name) => {
                known = targets::known(self.context, name).await?;
                self.check_allowed(&known.access, &initiator, has_tokens)?;
                vec![known.access.clone()]
            }
            None => targets::accesses(self.context).await?,
        };
        let wanted = wanted.into_iter().filter(|access| access.allows(&initiator));
        let proof = |access: Access| Some(Proof { initiator: access.chap?, target: access.mutual });
        let need = match (is_discovery, &known.access.chap) {
            (true, _) => Need::Nothing,
            (false, None) if !self.is_exposed => Need::NotEvenAName,
            (false, _) => Need::Proof,
        };
        let tokens = (has_tokens, known.access.mutual.clone());
        let authentication = Authentication::new(wanted.filter_map(proof).collect(), tokens, need);
        Ok(Names { initiator, target, negotiation, authentication, known })
    }

    /// Fails if an initiator may not have a target, whatever it proves.
    fn check_allowed(
        &self,
        access: &Access,
        initiator: &str,
        has_tokens: bool,
    ) -> Result<(), LoginError> {
        if !access.allows(initiator) {
            let why = format!("{initiator} is not among the initiators that the target allows");
            return refused(LoginStatus::AUTHORIZATION_FAILURE, why);
        }
        if self.is_exposed && access.chap.is_none() && !has_tokens {
            let why = "beyond this machine an initiator has to prove itself by CHAP: `hindsight \
                       target set`, `hindsight token create --chap`";
            return refused(LoginStatus::AUTHORIZATION_FAILURE, why);
        }
        Ok(())
    }

    /// A session has one connection.
    fn refuse_connection(
        &self,
        initiator: &str,
        target: Option<&str>,
    ) -> Result<Names, LoginError> {
        let key = self.key(Party::new(initiator, None), target.unwrap_or_default());
        if self.context.sessions.has(&key, self.first.tsih) {
            return refused(LoginStatus::TOO_MANY_CONNECTIONS, "a session has one connection");
        }
        refused(LoginStatus::NO_SESSION, "there is no such session")
    }

    fn key(&self, party: Party, target: &str) -> Key {
        Key { target: target.to_owned(), party, isid: self.first.isid }
    }

    fn negotiate(&mut self, pairs: &[Pair<'_>], answer: &mut Vec<u8>) -> Result<(), LoginError> {
        let names = self.names.as_mut().expect("the first request was taken up");
        let mut security = Vec::new();
        for pair in pairs {
            match names.negotiation.answer(pair) {
                Ok(Answer::Security) if self.stage == Stage::Security => security.push(*pair),
                Ok(Answer::Security) => {
                    return refused(LoginStatus::INITIATOR_ERROR, "security in a later stage");
                }
                Ok(other) => other.put(pair.key, answer),
                Err(error) => return refused(LoginStatus::INITIATOR_ERROR, error.to_string()),
            }
        }
        if !security.is_empty() {
            let is_discovery = names.target.is_none();
            let named = |name: &str| {
                let token = (self.context.tokens.named)(name)?;
                let is_good = !token.is_expired(RealClock::new().wall());
                let sees = is_discovery || names.known.is_seen_by(&Caller::of_token(&token, None));
                Some((token, is_good && sees))
            };
            names.authentication.take(&security, &named, answer).or_else(unproved)?;
        }
        if self.stage == Stage::Operational && !self.has_declared {
            self.has_declared = true;
            let longest = DATA_SEGMENT_BYTES_MAX.to_string();
            text::put("MaxRecvDataSegmentLength", &longest, answer);
        }
        Ok(())
    }

    /// Awaits the end of the session whose place this takes, and opens the target.
    async fn finish(&mut self) -> Result<Login, LoginError> {
        let caller = self.caller()?;
        let Names { initiator, target, mut negotiation, authentication, known } =
            self.names.take().expect("the first request was taken up");
        let parameters = negotiation.parameters();
        negotiation.finish_login();
        let mut login = Login {
            initiator,
            isid: self.first.isid,
            target: None,
            registered: None,
            asker: None,
            caller,
            negotiation,
            parameters,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.first.cmd_sn,
        };
        let Some(name) = target else {
            let (initiator, is_exposed) = (login.initiator.clone(), self.is_exposed);
            login.asker = Some(Asker { initiator, is_exposed, authentication });
            return Ok(login);
        };
        let party = Party::new(&login.initiator, login.caller.as_ref());
        let key = self.key(party.clone(), &name);
        match self.context.sessions.enter(key).await {
            Ok(registered) => login.registered = Some(registered),
            Err(_) => return refused(LoginStatus::OUT_OF_RESOURCES, "too many sessions"),
        }
        let client = format!("{} {}", self.client, login.initiator);
        let who = Who { party: &party, client: &client, caller: login.caller.as_ref() };
        let target = match targets::open(self.context, &name, who).await? {
            Ok(target) => target,
            Err(targets::Refusal { status, why }) => return refused(status, why),
        };
        if target.access != known.access {
            let why = "the name, or who may log in to it, was changed meanwhile";
            return refused(LoginStatus::SERVICE_UNAVAILABLE, why);
        }
        let is_another = |unit: &OpenUnit| {
            let unit = (unit.number, unit.opened);
            self.context.sessions.is_another(&name, &party, unit)
        };
        if target.units.iter().any(is_another) {
            let why = "this is not the disk that this initiator had less than 3 minutes ago: the \
                       name is another volume's, or the volume was reverted or made smaller";
            return refused(LoginStatus::SERVICE_UNAVAILABLE, why);
        }
        login.target = Some(target);
        Ok(login)
    }

    /// Somebody whom a token lets in, and who may at least read; none where the target's own secret
    /// was proved, or nothing had to be.
    fn caller(&self) -> Result<Option<Caller>, LoginError> {
        let names = self.names.as_ref().expect("the first request was taken up");
        let has_proved = |credential: &Credential| names.authentication.has_proved(credential);
        if names.target.is_none() || names.known.access.chap.as_ref().is_some_and(has_proved) {
            return Ok(None);
        }
        let Some(token) = names.authentication.token() else { return Ok(None) };
        let caller = Caller::of_token(token, Some(&self.client.into()));
        if !caller.may(Role::Reader) {
            let why = format!("{} is {}, and reads no data", caller.who, caller.role);
            return refused(LoginStatus::AUTHORIZATION_FAILURE, why);
        }
        (self.context.tokens.used)(token);
        Ok(Some(caller))
    }

    async fn respond(
        &mut self,
        connection: &mut Connection,
        request: &LoginRequest,
        next: Option<Stage>,
        tsih: u16,
        answer: &[u8],
    ) -> io::Result<()> {
        let response = LoginResponse { next, tsih, ..self.response(request, LoginStatus::SUCCESS) };
        send(connection, &response, answer).await
    }

    async fn refuse(
        &mut self,
        connection: &mut Connection,
        request: &LoginRequest,
        status: LoginStatus,
        why: &str,
    ) -> io::Result<()> {
        let response = self.response(request, status);
        let mut hint = Vec::new();
        text::put("X-local.hindsight.reason", &why.replace('\0', " "), &mut hint);
        hint.truncate(LOGIN_SEGMENT_BYTES_MAX as usize);
        send(connection, &response, &hint).await
    }

    fn response(&mut self, request: &LoginRequest, status: LoginStatus) -> LoginResponse {
        let exp_cmd_sn = self.first.cmd_sn;
        let max_cmd_sn = exp_cmd_sn.plus(WINDOW - 1);
        let numbers = Numbers { stat_sn: self.stat_sn, exp_cmd_sn, max_cmd_sn };
        self.stat_sn = self.stat_sn.next();
        LoginResponse {
            continues: false,
            stage: request.stage,
            next: None,
            version_max: 0,
            version_active: 0,
            isid: request.isid,
            tsih: request.tsih,
            task_tag: request.task_tag,
            numbers,
            status,
        }
    }
}

fn unproved(refusal: chap::Refused) -> Result<(), LoginError> {
    match refusal {
        chap::Refused::Unproved(why) => refused(LoginStatus::AUTHENTICATION_FAILURE, why),
        chap::Refused::Nonsense(why) => refused(LoginStatus::INITIATOR_ERROR, why),
    }
}

async fn send(
    connection: &mut Connection,
    response: &LoginResponse,
    answer: &[u8],
) -> io::Result<()> {
    let mut pdu = Vec::new();
    encode::pdu(&encode::login_response(response), answer, Digests::default(), &mut pdu);
    connection.write_all(&pdu).await?;
    connection.flush().await
}
