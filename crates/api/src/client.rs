//! A blocking client of the API, one call per method.
//!
//! It owns a small runtime, so it must not be used on a thread that already drives one.

use std::sync::Arc;

use hyper::Method;
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{
    API_PREFIX, Advice, AdviceQuery, Allow, ApplyRetention, AttachMember, AuditRecord, ChangeGroup,
    ChangeMadeTarget, ChangePool, ChangeShare, ChangeTarget, ChangeVolume, CloneGroup, CreateClone,
    CreateGroup, CreateMark, CreateShare, CreateTarget, CreateVersion, CreateVolume, DeleteQuery,
    DeletedVersions, DeletedVolume, DenyQuery, DiffQuery, DryRunQuery, ExitCode, Explained, Group,
    GroupReverted, GroupVersion, GrowPool, History, HistoryQuery, ImportVolume, IscsiAccess,
    IscsiTarget, Job, ListQuery, MadeTarget, Mark, MemberResolved, Model, ModelQuery, OpenFiles,
    Pool, Problem, Pruned, Range, RangeQuery, RecordQuery, Rename, Renamed, ReplaceMember,
    Resolved, Revert, Reverted, Schedule, Scrub, Server, SetSchedule, SetScrub, SetWatch, Share,
    Spare, Timeline, TimelineQuery, Undelete, Verification, Verify, Version, Volume, VolumeSpace,
    Watch,
};

mod address;
mod connection;
mod error;
mod files;
mod operations;
mod target;
mod tls;
mod tokens;

pub use address::ServerAddress;
use connection::{Content, Outgoing, Place};
pub use error::ClientError;
use target::Target;
pub use tls::{ClientTls, Distrust, TlsFileError};

/// The answer of a call; none where the server knows no such thing.
pub fn found<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if error.exit_code() == ExitCode::NotFound => Ok(None),
        answer => answer.map(Some),
    }
}

/// Part of a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<u64>,
}

impl<T> Page<T> {
    /// The entries of all pages; `get` is asked for the one that begins there.
    ///
    /// # Errors
    /// Those of `get`.
    pub fn all<E>(
        mut get: impl FnMut(Option<u64>) -> std::result::Result<Page<T>, E>,
    ) -> std::result::Result<Vec<T>, E> {
        let mut page = get(None)?;
        let mut all = page.entries;
        while page.next.is_some() {
            page = get(page.next)?;
            all.append(&mut page.entries);
        }
        Ok(all)
    }
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    address: ServerAddress,
    tls: Option<Arc<ClientConfig>>,
    /// How long an answer may take.
    deadline: Option<std::time::Duration>,
    runtime: tokio::runtime::Runtime,
}

type Result<T> = std::result::Result<T, ClientError>;

impl Client {
    /// A client of the server at `address`; connects when something is asked.
    ///
    /// # Errors
    /// When the operating system gives it no event loop.
    pub fn new(address: ServerAddress) -> Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ClientError::Start)?;
        Ok(Client { address, tls: None, deadline: None, runtime })
    }

    /// The same, which knows a server under TLS by these files.
    ///
    /// # Errors
    /// When they cannot be read, or do not fit together.
    pub fn with_tls(self, files: &ClientTls) -> Result<Client> {
        Ok(Client { tls: Some(tls::load(files)?), ..self })
    }

    /// The same, which waits for no answer longer than this.
    #[must_use]
    pub fn with_deadline(self, deadline: std::time::Duration) -> Client {
        Client { deadline: Some(deadline), ..self }
    }

    /// Where the server is.
    #[must_use]
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// All volumes by name.
    ///
    /// # Errors
    /// As every call: no server there, or the server's problem.
    pub fn volumes(&self) -> Result<Vec<Volume>> {
        self.get(&Target::new("/volumes"))
    }

    /// All shares by name.
    pub fn shares(&self) -> Result<Vec<Share>> {
        self.get(&Target::new("/shares"))
    }

    /// One share.
    pub fn share(&self, name: &str) -> Result<Share> {
        self.get(&share(name))
    }

    /// Creates a share.
    pub fn create_share(&self, body: &CreateShare) -> Result<Share> {
        self.post(&Target::new("/shares"), body)
    }

    /// Changes settings of a share.
    pub fn change_share(&self, name: &str, body: &ChangeShare) -> Result<Share> {
        self.call(Method::PATCH, &share(name), Some(body))
    }

    /// Deletes a share; says what would be deleted if that is only asked.
    pub fn remove_share(&self, name: &str, query: &DeleteQuery) -> Result<Option<DeletedVolume>> {
        self.delete_or_tell(&share(name).query(query), query.dry_run)
    }

    /// Allows a network to use a share.
    pub fn allow_share(&self, name: &str, body: &Allow) -> Result<Share> {
        self.post(&share(name).part("allowed"), body)
    }

    /// Takes the entry of a network in a share away.
    pub fn deny_share(&self, name: &str, network: &str) -> Result<()> {
        let query = DenyQuery { network: network.to_owned() };
        self.delete(&share(name).part("allowed").query(&query))
    }

    /// The iSCSI targets that volumes are.
    pub fn targets(&self) -> Result<Vec<IscsiTarget>> {
        self.get(&Target::new("/targets"))
    }

    /// Changes who may log in to a volume over iSCSI.
    pub fn change_target(&self, name: &str, body: &ChangeTarget) -> Result<IscsiAccess> {
        self.call(Method::PATCH, &Target::new("/targets").part(name), Some(body))
    }

    /// The iSCSI targets of several units.
    pub fn made_targets(&self) -> Result<Vec<MadeTarget>> {
        self.get(&Target::new("/made-targets"))
    }

    /// Makes one.
    pub fn create_target(&self, body: &CreateTarget) -> Result<MadeTarget> {
        self.post(&Target::new("/made-targets"), body)
    }

    /// Changes the units of one, or who may log in.
    pub fn change_made_target(&self, name: &str, body: &ChangeMadeTarget) -> Result<MadeTarget> {
        self.call(Method::PATCH, &Target::new("/made-targets").part(name), Some(body))
    }

    /// Deletes one; its volumes stay.
    pub fn delete_target(&self, name: &str, force: bool) -> Result<()> {
        self.delete(&forced(Target::new("/made-targets").part(name), force))
    }

    /// One volume.
    pub fn volume(&self, name: &str) -> Result<Volume> {
        self.get(&volume(name))
    }

    /// The uses of a volume's space.
    pub fn volume_space(&self, name: &str) -> Result<VolumeSpace> {
        self.get(&volume(name).part("space"))
    }

    /// Creates a volume.
    pub fn create_volume(&self, body: &CreateVolume) -> Result<Volume> {
        self.post(&Target::new("/volumes"), body)
    }

    /// Makes a volume of a file of the server's machine, which is read until it is copied.
    pub fn import_volume(&self, body: &ImportVolume) -> Result<Volume> {
        self.post(&Target::new("/imports"), body)
    }

    /// Changes settings or the size; shrinking under attached clients needs `force`.
    pub fn change_volume(&self, name: &str, body: &ChangeVolume, force: bool) -> Result<Volume> {
        self.call(Method::PATCH, &forced(volume(name), force), Some(body))
    }

    /// Gives a volume another name.
    pub fn rename_volume(&self, name: &str, body: &Rename) -> Result<Renamed> {
        self.post(&volume(name).part("rename"), body)
    }

    /// Deletes a volume, to be had back for a week; with versions, pinned marks or attached clients
    /// only by `force`.
    pub fn delete_volume(&self, name: &str, force: bool) -> Result<()> {
        self.remove_volume(name, &DeleteQuery { force, ..DeleteQuery::default() }).map(drop)
    }

    /// Deletes a volume in a way of one's own; says what would be deleted if that is only asked.
    pub fn remove_volume(&self, name: &str, query: &DeleteQuery) -> Result<Option<DeletedVolume>> {
        self.delete_or_tell(&volume(name).query(query), query.dry_run)
    }

    /// Deleted volumes that can be had back.
    pub fn trash(&self) -> Result<Vec<DeletedVolume>> {
        self.get(&Target::new("/trash"))
    }

    /// Brings a deleted volume back.
    pub fn undelete_volume(&self, id: u64, body: &Undelete) -> Result<Volume> {
        self.post(&Target::new("/trash").part(&id.to_string()).part("undelete"), body)
    }

    /// Deletes a volume in the trash for good; says what would be deleted if that is only asked.
    pub fn empty_trash(&self, id: u64, query: DryRunQuery) -> Result<Option<DeletedVolume>> {
        let target = Target::new("/trash").part(&id.to_string()).query(&query);
        self.delete_or_tell(&target, query.dry_run)
    }

    /// Resolves a moment expression.
    pub fn resolve(&self, name: &str, at: &str) -> Result<Resolved> {
        self.get(&volume(name).part("resolve").field("at", at))
    }

    /// A page of what was written when.
    pub fn history(&self, name: &str, query: &HistoryQuery) -> Result<History> {
        self.get(&volume(name).part("history").query(query))
    }

    /// The writes of a range, in columns of equal length.
    pub fn timeline(&self, name: &str, query: &TimelineQuery) -> Result<Timeline> {
        self.get(&volume(name).part("timeline").query(query))
    }

    /// Makes a past moment the present.
    pub fn revert(&self, name: &str, body: &Revert) -> Result<Reverted> {
        self.post(&volume(name).part("revert"), body)
    }

    /// Makes a writable volume that starts at a moment of another.
    pub fn create_clone(&self, name: &str, body: &CreateClone) -> Result<Volume> {
        self.post(&volume(name).part("clones"), body)
    }

    /// A page of versions, ascending.
    pub fn versions(&self, name: &str, query: &ListQuery) -> Result<Page<Version>> {
        self.page(&volume(name).part("versions").query(query))
    }

    /// The files that were open when a version was captured.
    pub fn open_files(&self, name: &str, number: u64) -> Result<OpenFiles> {
        self.get(&volume(name).part("versions").part(&number.to_string()).part("open-files"))
    }

    /// One version.
    pub fn version(&self, name: &str, number: u64) -> Result<Version> {
        self.get(&volume(name).part("versions").part(&number.to_string()))
    }

    /// Captures the present.
    pub fn create_version(&self, name: &str, body: &CreateVersion) -> Result<Version> {
        self.post(&volume(name).part("versions"), body)
    }

    /// Asks for a version to be compacted.
    pub fn compact_version(&self, name: &str, number: u64) -> Result<Job> {
        let version = volume(name).part("versions").part(&number.to_string());
        self.call(Method::POST, &version.part("compact"), None::<&()>)
    }

    /// Asks for a version to be uncompacted.
    pub fn uncompact_version(&self, name: &str, number: u64) -> Result<Job> {
        let version = volume(name).part("versions").part(&number.to_string());
        self.call(Method::POST, &version.part("uncompact"), None::<&()>)
    }

    /// A page of jobs, by volume and version.
    pub fn jobs(&self, query: &ListQuery) -> Result<Page<Job>> {
        self.page(&Target::new("/jobs").query(query))
    }

    /// A job.
    pub fn job(&self, id: &str) -> Result<Job> {
        self.get(&Target::new("/jobs").part(id))
    }

    /// Deletes a version.
    pub fn delete_version(&self, name: &str, number: u64) -> Result<()> {
        self.delete(&volume(name).part("versions").part(&number.to_string()))
    }

    /// Deletes a range of versions.
    pub fn delete_versions(&self, name: &str, query: &RangeQuery) -> Result<DeletedVersions> {
        let target = volume(name).part("versions").query(query);
        self.call(Method::DELETE, &target, None::<&()>)
    }

    /// All schedules: by volume, then by group.
    pub fn schedules(&self) -> Result<Vec<Schedule>> {
        self.get(&Target::new("/schedules"))
    }

    /// The schedule of a volume.
    pub fn schedule(&self, name: &str) -> Result<Schedule> {
        self.get(&volume(name).part("schedule"))
    }

    /// Sets or changes the schedule of a volume.
    pub fn set_schedule(&self, name: &str, body: &SetSchedule) -> Result<Schedule> {
        self.call(Method::PUT, &volume(name).part("schedule"), Some(body))
    }

    /// Removes the schedule of a volume; its versions stay.
    pub fn remove_schedule(&self, name: &str) -> Result<()> {
        self.delete(&volume(name).part("schedule"))
    }

    /// A page of why versions stay or go.
    pub fn retention(&self, name: &str, query: &ListQuery) -> Result<Page<Explained>> {
        self.page(&volume(name).part("retention").query(query))
    }

    /// Prunes now what no rule keeps.
    pub fn apply_retention(&self, name: &str, body: &ApplyRetention) -> Result<Pruned> {
        self.post(&volume(name).part("retention"), body)
    }

    /// All groups by name.
    pub fn groups(&self) -> Result<Vec<Group>> {
        self.get(&Target::new("/groups"))
    }

    /// One group.
    pub fn group(&self, name: &str) -> Result<Group> {
        self.get(&group(name))
    }

    /// Makes a group of volumes.
    pub fn create_group(&self, body: &CreateGroup) -> Result<Group> {
        self.post(&Target::new("/groups"), body)
    }

    /// Changes the settings of a group.
    pub fn change_group(&self, name: &str, body: &ChangeGroup) -> Result<Group> {
        self.call(Method::PATCH, &group(name), Some(body))
    }

    /// Deletes a group; its volumes and their versions stay.
    pub fn delete_group(&self, name: &str) -> Result<()> {
        self.delete(&group(name))
    }

    /// A page of the captures of a group, ascending.
    pub fn group_versions(&self, name: &str, query: &ListQuery) -> Result<Page<GroupVersion>> {
        self.page(&group(name).part("versions").query(query))
    }

    /// Deletes a range of the captures of a group, with their versions.
    pub fn delete_group_versions(&self, name: &str, query: &RangeQuery) -> Result<DeletedVersions> {
        let target = group(name).part("versions").query(query);
        self.call(Method::DELETE, &target, None::<&()>)
    }

    /// Captures all volumes of a group at one instant.
    pub fn create_group_version(&self, name: &str, body: &CreateVersion) -> Result<GroupVersion> {
        self.post(&group(name).part("versions"), body)
    }

    /// Resolves a moment of a group for each of its volumes.
    pub fn resolve_group(&self, name: &str, at: &str) -> Result<Vec<MemberResolved>> {
        self.get(&group(name).part("resolve").field("at", at))
    }

    /// Makes a past moment the present of all volumes of a group.
    pub fn revert_group(&self, name: &str, body: &Revert) -> Result<GroupReverted> {
        self.post(&group(name).part("revert"), body)
    }

    /// Makes a clone of each volume of a group, and a group of these.
    pub fn clone_group(&self, name: &str, body: &CloneGroup) -> Result<Group> {
        self.post(&group(name).part("clones"), body)
    }

    /// The schedule of a group.
    pub fn group_schedule(&self, name: &str) -> Result<Schedule> {
        self.get(&group(name).part("schedule"))
    }

    /// Sets or changes the schedule of a group.
    pub fn set_group_schedule(&self, name: &str, body: &SetSchedule) -> Result<Schedule> {
        self.call(Method::PUT, &group(name).part("schedule"), Some(body))
    }

    /// Removes the schedule of a group; what it captured stays.
    pub fn remove_group_schedule(&self, name: &str) -> Result<()> {
        self.delete(&group(name).part("schedule"))
    }

    /// A page of why captures of a group stay or go.
    pub fn group_retention(&self, name: &str, query: &ListQuery) -> Result<Page<Explained>> {
        self.page(&group(name).part("retention").query(query))
    }

    /// Prunes now the captures of a group that no rule keeps.
    pub fn apply_group_retention(&self, name: &str, body: &ApplyRetention) -> Result<Pruned> {
        self.post(&group(name).part("retention"), body)
    }

    /// A page of marks by name.
    pub fn marks(&self, name: &str, query: &ListQuery) -> Result<Page<Mark>> {
        self.page(&volume(name).part("marks").query(query))
    }

    /// Names a moment.
    pub fn create_mark(&self, name: &str, body: &CreateMark) -> Result<Mark> {
        self.post(&volume(name).part("marks"), body)
    }

    /// The verdicts of checks on moments of a volume, the last first.
    pub fn verifications(&self, name: &str) -> Result<Vec<Verification>> {
        self.get(&volume(name).part("verifications"))
    }

    /// Has a check look at a moment.
    pub fn verify(&self, name: &str, body: &Verify) -> Result<Verification> {
        self.post(&volume(name).part("verifications"), body)
    }

    /// The watch over a volume, and its alarms.
    pub fn watch(&self, name: &str) -> Result<Watch> {
        self.get(&volume(name).part("watch"))
    }

    /// Has a volume watched.
    pub fn set_watch(&self, name: &str, body: &SetWatch) -> Result<Watch> {
        self.call(Method::PUT, &volume(name).part("watch"), Some(body))
    }

    /// Has a volume watched no more.
    pub fn remove_watch(&self, name: &str) -> Result<()> {
        self.delete(&volume(name).part("watch"))
    }

    /// Deletes a mark.
    pub fn delete_mark(&self, name: &str, mark: &str) -> Result<()> {
        self.delete(&volume(name).part("marks").part(mark))
    }

    /// A page of the byte ranges that differ between two moments.
    pub fn diff(&self, name: &str, query: &DiffQuery) -> Result<Page<Range>> {
        self.page(&volume(name).part("diff").query(query))
    }

    /// The cost model's answer for the requests of a volume.
    pub fn model(&self, name: &str, query: &ModelQuery) -> Result<Model> {
        self.get(&volume(name).part("model").query(query))
    }

    /// How a volume had better be set up.
    pub fn advice(&self, name: &str, query: &AdviceQuery) -> Result<Advice> {
        self.get(&volume(name).part("advice").query(query))
    }

    /// Records a volume: the bytes of a trace, as they come, until it ends.
    pub fn record(
        &self,
        name: &str,
        query: &RecordQuery,
        keep: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<()> {
        let target = format!("{API_PREFIX}{}", volume(name).part("trace").query(query));
        let outgoing = Outgoing { method: Method::GET, target, content: Content::None };
        let refused = self.runtime.block_on(connection::receive(self.place(), outgoing, keep))?;
        match refused {
            None => Ok(()),
            Some(answer) => Err(ClientError::Problem(Box::new(read(&answer)?))),
        }
    }

    /// The server itself: its version, its clock, where it listens.
    pub fn server(&self) -> Result<Server> {
        self.get(&Target::new("/server"))
    }

    /// The pool as it stands.
    pub fn pool(&self) -> Result<Pool> {
        self.get(&Target::new("/pool"))
    }

    /// Puts another file or disk in the place of one that the pool is made of.
    pub fn replace_member(&self, body: &ReplaceMember) -> Result<Pool> {
        self.post(&Target::new("/pool/replace"), body)
    }

    /// Has a file or disk get everything that the pool has, beside its one file or its mirror.
    pub fn attach_member(&self, body: &AttachMember) -> Result<Pool> {
        self.post(&Target::new("/pool/attach"), body)
    }

    /// Changes how the pool is run.
    pub fn change_pool(&self, body: &ChangePool) -> Result<Pool> {
        self.call(Method::PATCH, &Target::new("/pool"), Some(body))
    }

    /// Makes the pool larger by new members, while it is used.
    pub fn grow_pool(&self, body: &GrowPool) -> Result<Pool> {
        self.post(&Target::new("/pool/grow"), body)
    }

    /// Adds a spare to the pool.
    pub fn add_spare(&self, body: &Spare) -> Result<Pool> {
        self.post(&Target::new("/pool/spares"), body)
    }

    /// Takes a spare of the pool away.
    pub fn remove_spare(&self, query: &Spare) -> Result<Pool> {
        self.call(Method::DELETE, &Target::new("/pool/spares").query(query), None::<&()>)
    }

    /// Begins a scrub of the pool.
    pub fn scrub(&self) -> Result<Job> {
        self.call(Method::POST, &Target::new("/pool/scrub"), None::<&()>)
    }

    /// Stops the scrub that runs.
    pub fn stop_scrub(&self) -> Result<Scrub> {
        self.call(Method::DELETE, &Target::new("/pool/scrub"), None::<&()>)
    }

    /// Changes how often there is one.
    pub fn set_scrub(&self, body: &SetScrub) -> Result<SetScrub> {
        self.call(Method::PUT, &Target::new("/pool/scrub"), Some(body))
    }

    /// A page of the audit log, oldest first.
    pub fn audit(&self, query: &ListQuery) -> Result<Page<AuditRecord>> {
        self.page(&Target::new("/audit").query(query))
    }

    fn get<T: DeserializeOwned>(&self, target: &Target) -> Result<T> {
        self.call(Method::GET, target, None::<&()>)
    }

    fn post<T: DeserializeOwned>(&self, target: &Target, body: &impl Serialize) -> Result<T> {
        self.call(Method::POST, target, Some(body))
    }

    fn delete(&self, target: &Target) -> Result<()> {
        self.exchange(Method::DELETE, target, None::<&()>).map(|_| ())
    }

    fn delete_or_tell<T: DeserializeOwned>(
        &self,
        target: &Target,
        dry_run: bool,
    ) -> Result<Option<T>> {
        match dry_run {
            true => self.call(Method::DELETE, target, None::<&()>).map(Some),
            false => self.delete(target).map(|()| None),
        }
    }

    fn page<T: DeserializeOwned>(&self, target: &Target) -> Result<Page<T>> {
        let answer = self.exchange(Method::GET, target, None::<&()>)?;
        let next = answer.link.as_deref().and_then(target::next_of_link);
        Ok(Page { entries: read(&answer)?, next })
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &Target,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        read(&self.exchange(method, target, body)?)
    }

    fn exchange(
        &self,
        method: Method,
        target: &Target,
        body: Option<&impl Serialize>,
    ) -> Result<connection::Incoming> {
        let content = body.map_or(Content::None, |body| {
            Content::Json(serde_json::to_vec(body).expect("our own types always serialise"))
        });
        self.send(Outgoing { method, target: format!("{API_PREFIX}{target}"), content })
    }

    fn place(&self) -> Place<'_> {
        Place { address: &self.address, tls: self.tls.as_ref() }
    }

    fn send(&self, outgoing: Outgoing) -> Result<connection::Incoming> {
        let asked = connection::exchange(self.place(), outgoing);
        let answer = self.runtime.block_on(async {
            match self.deadline {
                None => asked.await,
                Some(deadline) => match tokio::time::timeout(deadline, asked).await {
                    Ok(answer) => answer,
                    Err(_) => Err(ClientError::Late(deadline)),
                },
            }
        })?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let problem: Problem = read(&answer)?;
        Err(ClientError::Problem(Box::new(problem)))
    }
}

fn read<T: DeserializeOwned>(answer: &connection::Incoming) -> Result<T> {
    serde_json::from_slice(&answer.body)
        .map_err(|source| ClientError::Answer { status: answer.status.as_u16(), source })
}

fn share(name: &str) -> Target {
    Target::new("/shares").part(name)
}

fn volume(name: &str) -> Target {
    Target::new("/volumes").part(name)
}

fn group(name: &str) -> Target {
    Target::new("/groups").part(name)
}

fn forced(target: Target, force: bool) -> Target {
    if force { target.field("force", "true") } else { target }
}
