//! The names of targets, and what they open.
//!
//! A name of a moment keeps its meaning once it was opened (`opened_names`).
//!
//! A made target has several units, each opened as an automatic target's only one. Sessions on it
//! hear of changes, and open what is new by a task of their own.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use env::{Clock, RealClock};
use tokio::sync::watch;
use units::Role;
use volume::{Access, OpenedName, TargetInfo, Token};
use wire::iscsi::{LoginStatus, names, text};

use super::bells::{Bell, Bells, OpenUnit};
use super::chap::Authentication;
use super::context::IscsiContext;
use super::opened_names::{Entered, Moment};
use super::sessions::Party;
use super::target_names::Targets;
use super::unit::Number;
use crate::serving::{Attached, Export, Exports, OpenError, attach, off_thread, try_attach};
use crate::who::Caller;
use crate::{Attachment, VolumeId};

/// Targets that are looked at together for an answer to SendTargets.
const LISTED_AT_ONCE: usize = 64;

/// A target that an initiator has open.
pub(super) struct Target {
    /// Its iSCSI name.
    pub(super) name: String,
    pub(super) access: Access,
    pub(super) units: Vec<OpenUnit>,
    pub(super) used: Option<Used>,
    pub(super) made: Option<Made>,
}

/// A target that was made, as a session has it.
pub(super) struct Made {
    id: u64,
    name: String,
    /// The access that the initiator has shown to have.
    access: Access,
    /// The numbers of its units that were opened, or found to be another disk than was lost.
    have: BTreeSet<Number>,
    /// Told when made targets change, since before this one was looked up.
    changed: watch::Receiver<()>,
}

/// Why units are not opened now.
enum NotNow {
    /// A volume is closed: all is looked at anew when it is not.
    Closed(VolumeId),
    Refused(Refusal),
}

/// The outcome of a look at a target that has changed.
enum Looked {
    Done,
    /// Again, when this volume is not closed any more.
    Closed(VolumeId),
    /// The target, the session or the server is no more.
    Over,
}

/// A name in use by a session.
pub(super) struct Used {
    context: Arc<IscsiContext>,
    name: String,
}

/// Why a target is not opened.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: LoginStatus,
    /// For people.
    pub(super) why: String,
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Refusal {
        // Initiators take "not found" as final, and try again whatever may pass.
        let status = match error.may_pass {
            true => LoginStatus::SERVICE_UNAVAILABLE,
            false => LoginStatus::NOT_FOUND,
        };
        Refusal { status, why: error.message }
    }
}

impl Refusal {
    fn not_found(why: String) -> Refusal {
        Refusal { status: LoginStatus::NOT_FOUND, why }
    }

    /// A volume was renamed, or a unit added, since it was looked whether the token sees all.
    fn unseen() -> Refusal {
        let why = "the token does not see all volumes of the target".to_owned();
        Refusal { status: LoginStatus::AUTHORIZATION_FAILURE, why }
    }
}

/// The access to each target that asks for a proof.
pub(super) async fn accesses(context: &Arc<IscsiContext>) -> io::Result<Vec<Access>> {
    let context = Arc::clone(context);
    let accesses = move || {
        let presents = context.exports.presents().into_iter().map(|export| export.access());
        let made = context.exports.targets().into_iter().map(|made| made.access);
        made.chain(presents).filter(|access| access.chap.is_some()).collect()
    };
    off_thread(accesses).await
}

/// An initiator that asks for targets, and what it has shown of itself.
pub(super) struct Asker {
    pub(super) initiator: String,
    /// Others hear what is said, and reach the address that it came to.
    pub(super) is_exposed: bool,
    pub(super) authentication: Authentication,
}

/// Somebody who opens a target.
#[derive(Clone, Copy)]
pub(super) struct Who<'w> {
    pub(super) party: &'w Party,
    /// As lists of clients name it.
    pub(super) client: &'w str,
    /// Whom a token let in: it gets no volume that it does not see.
    pub(super) caller: Option<&'w Caller>,
}

impl Who<'_> {
    /// Whether it may have what was opened, by the name that its volume has now.
    fn sees(&self, export: &dyn Export) -> bool {
        let volume = export.name().split('@').next().unwrap_or_default();
        self.caller.is_none_or(|caller| caller.sees(volume))
    }
}

impl Asker {
    /// Whether it may log in to a target of this name.
    fn may(&self, exports: &dyn Exports, name: &str, access: &Access) -> bool {
        let has_proved = match &access.chap {
            Some(credential) => self.authentication.has_proved(credential),
            None => !self.is_exposed,
        };
        let sees = |token: &Arc<Token>| {
            let caller = Caller::of_token(token, None);
            let is_good = !token.is_revoked() && !token.is_expired(RealClock::new().wall());
            is_good && caller.may(Role::Reader) && Known::of(exports, name).is_seen_by(&caller)
        };
        let may = has_proved || self.authentication.token().is_some_and(sees);
        may && access.allows(&self.initiator)
    }
}

/// How far an answer to an initiator that asks for all targets is: it is made as it is taken.
pub(super) struct Listing {
    /// The last name that was looked at.
    last: String,
    is_over: bool,
}

impl Listing {
    /// Of an answer that begins.
    pub(super) fn begin() -> Listing {
        Listing { last: String::new(), is_over: false }
    }

    /// Whether all were told.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Adds targets until there are as many bytes, or no more targets. The past is opened by those
    /// who know its name: initiators log in to whatever is listed.
    pub(super) fn put(
        &mut self,
        (context, asker): (&IscsiContext, &Asker),
        portals: &[(&str, u16)],
        bytes: usize,
        out: &mut Vec<u8>,
    ) {
        while !self.is_over && out.len() < bytes {
            let page = context.exports.targets_after(&self.last, LISTED_AT_ONCE);
            self.is_over = page.len() < LISTED_AT_ONCE;
            for (name, access) in page {
                if asker.may(&*context.exports, &name, &access)
                    && let Some(target) = context.targets.name_of(&name)
                {
                    text::put_target(&target, portals, out);
                }
                self.last = name;
            }
        }
    }
}

/// Whether an initiator may log in to what a name names, if that is no moment.
pub(super) fn may_know(context: &IscsiContext, asker: &Asker, name: &str) -> bool {
    let Some(wanted) = names::split(&context.targets.base, name) else { return false };
    let access = context.exports.target(&wanted.volume).map(|made| made.access).or_else(|| {
        let presents = context.exports.presents();
        presents.iter().find(|it| it.name() == wanted.volume).map(|it| it.access())
    });
    let may = |access: Access| asker.may(&*context.exports, &wanted.volume, &access);
    wanted.moment.is_none() && access.is_some_and(may)
}

/// The things of a target that a login is judged by.
#[derive(Default)]
pub(super) struct Known {
    /// Everybody has access to what is not there.
    pub(super) access: Access,
    /// The names of its volumes.
    volumes: Vec<String>,
}

impl Known {
    /// Of a target that was made, or of the present or the past of a volume.
    fn of(exports: &dyn Exports, name: &str) -> Known {
        match exports.target(name) {
            Some(made) => {
                // A unit that is not served now has no name; it is asked of as it is opened.
                let named = made.units.into_iter().filter_map(|unit| unit.volume);
                Known { access: made.access, volumes: named.collect() }
            }
            None => {
                let present = exports.open(name);
                let access = present.map_or_else(|_| Access::default(), |export| export.access());
                Known { access, volumes: vec![name.to_owned()] }
            }
        }
    }

    /// Whether somebody sees all of it.
    pub(super) fn is_seen_by(&self, caller: &Caller) -> bool {
        self.volumes.iter().all(|volume| caller.sees(volume))
    }
}

/// The same of what a name names, be it made, present or past.
pub(super) async fn known(context: &Arc<IscsiContext>, name: &str) -> io::Result<Known> {
    let Some(wanted) = names::split(&context.targets.base, name) else {
        return Ok(Known::default());
    };
    let context = Arc::clone(context);
    off_thread(move || Known::of(&*context.exports, &wanted.volume)).await
}

/// Opens a target, by its name with upper case folded, and attaches its session.
pub(super) async fn open(
    context: &Arc<IscsiContext>,
    name: &str,
    who: Who<'_>,
) -> io::Result<Result<Target, Refusal>> {
    let targets = &context.targets;
    let Some(wanted) = names::split(&targets.base, name) else {
        return Ok(Err(Refusal::not_found(format!(
            "no such target; those of this server are called {}:VOLUME",
            targets.base
        ))));
    };
    loop {
        let changed = targets.changed.subscribe();
        let (exports, volume) = (Arc::clone(&context.exports), wanted.volume.clone());
        let Some(made) = off_thread(move || exports.target(&volume)).await? else { break };
        if wanted.moment.is_some() {
            let why = "a made target has no moments: make one of moments".to_owned();
            return Ok(Err(Refusal::not_found(why)));
        }
        match open_made(context, name, made, changed, who).await? {
            Ok(target) => return Ok(Ok(target)),
            Err(NotNow::Refused(refusal)) => return Ok(Err(refusal)),
            Err(NotNow::Closed(volume)) => context.attachments.opened(volume).await,
        }
    }
    let Some(moment) = &wanted.moment else {
        return Ok(match attach(context, &wanted.volume, who.client).await? {
            Ok(opened) if !who.sees(&*opened.0) => Err(Refusal::unseen()),
            Ok(opened) => Ok(target(targets, name, opened, None)),
            Err(error) => Err(error.into()),
        });
    };
    let meaning = targets.opened.meaning(name);
    let disk = match meaning {
        Some((_, seq)) => format!("{}@seq:{}", wanted.volume, seq.0),
        None => format!("{}@{moment}", wanted.volume),
    };
    let opened = match attach(context, &disk, who.client).await? {
        Ok(opened) if !who.sees(&*opened.0) => return Ok(Err(Refusal::unseen())),
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error.into())),
    };
    let Some(seq) = opened.0.moment() else {
        return Ok(Err(Refusal::not_found("that is no moment of the past".to_owned())));
    };
    let found = (opened.0.part_of().0, seq);
    // The nearest moment that is there is another disk.
    let said = moment.strip_prefix("seq:").map(|text| text.parse() == Ok(seq.0));
    if meaning.is_some_and(|meaning| meaning != found) || said == Some(false) {
        let why = "the moment that this name means can no longer be opened".to_owned();
        return Ok(Err(Refusal::not_found(why)));
    }
    // A name that says its moment needs no memory.
    if said.is_some() {
        return Ok(Ok(target(targets, name, opened, None)));
    }
    let used = use_name(context, name, found).await?;
    if used.is_none() {
        // Another login gave it its meaning meanwhile, or there are too many: it is tried again.
        let why = "the name is being opened, or too many names of moments are in use".to_owned();
        return Ok(Err(Refusal { status: LoginStatus::OUT_OF_RESOURCES, why }));
    }
    Ok(Ok(target(targets, name, opened, used)))
}

/// Enters a session that opened a name, whose meaning is kept over restarts from then on; none if
/// it means something else, or too many are in use. A pool that takes no commits is no reason to
/// refuse its past.
async fn use_name(
    context: &Arc<IscsiContext>,
    name: &str,
    moment: Moment,
) -> io::Result<Option<Used>> {
    let names = &context.targets.opened;
    let used = || Used { context: Arc::clone(context), name: name.to_owned() };
    if names.enter_durable(name, moment) {
        return Ok(Some(used()));
    }
    let turn = names.turn().await;
    let entered = names.enter(name, moment);
    if entered == Entered::Refused {
        return Ok(None);
    }
    let used = used();
    if entered == Entered::ToKeep {
        let opened = OpenedName { name: name.to_owned(), volume_id: moment.0, seq: moment.1 };
        let context = Arc::clone(context);
        // A login that is given up meanwhile changes nothing of it.
        off_thread(move || {
            let (_turn, names) = (turn, &context.targets.opened);
            let forgotten = names.forgotten();
            match context.exports.keep_opened_name(&opened, &forgotten) {
                Ok(()) => names.kept(&opened.name, &forgotten),
                Err(error) => {
                    let name = opened.name;
                    tracing::warn!(name, %error, "it means this moment until the server ends only");
                }
            }
        })
        .await?;
    }
    Ok(Some(used))
}

fn target(
    targets: &Targets,
    name: &str,
    opened: (Arc<dyn Export>, Attachment),
    used: Option<Used>,
) -> Target {
    let (name, access) = (name.to_owned(), opened.0.access());
    let units = vec![open_unit(targets, &name, 0, opened)];
    Target { name, access, units, used, made: None }
}

fn open_unit(
    targets: &Targets,
    name: &str,
    number: Number,
    (export, attachment): (Arc<dyn Export>, Attachment),
) -> OpenUnit {
    let unit = (export.part_of().0, export.moment());
    let identity = targets.identity(name, unit);
    // Nobody reverts it while it is attached.
    let opened = (unit, export.last_rewrite());
    OpenUnit { number, export, attachment, identity, opened }
}

/// Opens a made target with all of its units that can be opened.
async fn open_made(
    context: &Arc<IscsiContext>,
    name: &str,
    info: TargetInfo,
    changed: watch::Receiver<()>,
    who: Who<'_>,
) -> io::Result<Result<Target, NotNow>> {
    let (have, access) = (BTreeSet::new(), info.access.clone());
    let mut made = Made { id: info.id, name: info.name.clone(), access, have, changed };
    let units = match made.open_new(context, name, &info, who).await? {
        Ok(units) if units.is_empty() => {
            let why = "no unit of this target can be opened now: its volumes are gone, or were \
                       reverted less than 3 minutes ago";
            let refusal = Refusal { status: LoginStatus::SERVICE_UNAVAILABLE, why: why.into() };
            return Ok(Err(NotNow::Refused(refusal)));
        }
        Ok(units) => units,
        Err(not_now) => return Ok(Err(not_now)),
    };
    let (name, access) = (name.to_owned(), info.access);
    Ok(Ok(Target { name, access, units, used: None, made: Some(made) }))
}

impl Made {
    /// Opens the units that the session has not. One that cannot be opened is left out, as is one
    /// that is another disk than the initiator lost a while ago; but if it may well be opened
    /// later, nothing is: half of a group is worse than none. Nor is anything held while a volume
    /// is closed: who closes it may want the others next.
    async fn open_new(
        &mut self,
        context: &Arc<IscsiContext>,
        name: &str,
        info: &TargetInfo,
        who: Who<'_>,
    ) -> io::Result<Result<Vec<OpenUnit>, NotNow>> {
        let Who { party, client, .. } = who;
        let mut units = Vec::new();
        for unit in info.units.iter().filter(|unit| !self.have.contains(&unit.number)) {
            let (volume, seq) = (unit.volume_id, unit.seq);
            let open = move |exports: &dyn Exports| exports.open_unit(volume, seq);
            let opened = match try_attach(context, client, open).await? {
                Ok(Attached::Open(export, _)) if !who.sees(&*export) => {
                    return Ok(Err(NotNow::Refused(Refusal::unseen())));
                }
                Ok(Attached::Open(export, attachment)) => (export, attachment),
                Ok(Attached::Closed(volume)) => return Ok(Err(NotNow::Closed(volume))),
                Err(error) if error.may_pass => return Ok(Err(NotNow::Refused(error.into()))),
                Err(error) => {
                    tracing::info!(name, number = unit.number, %error, "a number without a unit");
                    continue;
                }
            };
            let unit = open_unit(&context.targets, name, unit.number, opened);
            if context.sessions.is_another(name, party, (unit.number, unit.opened)) {
                tracing::warn!(name, number = unit.number, client, "not the disk that was lost");
                continue;
            }
            units.push(unit);
        }
        self.have.extend(units.iter().map(|unit| unit.number));
        Ok(Ok(units))
    }

    /// Rings for a session whenever the target has other units, until it is deleted.
    pub(super) async fn watch(
        mut self,
        context: Arc<IscsiContext>,
        name: String,
        (party, client, caller): (Party, String, Option<Caller>),
        bells: Bells,
    ) {
        let who = Who { party: &party, client: &client, caller: caller.as_ref() };
        while self.changed.changed().await.is_ok() {
            let mut looked = self.look(&context, &name, who, &bells).await;
            while let Looked::Closed(volume) = looked {
                tokio::select! {
                    () = context.attachments.opened(volume) => {}
                    // It may be no unit any more.
                    _ = self.changed.changed() => {}
                }
                looked = self.look(&context, &name, who, &bells).await;
            }
            if matches!(looked, Looked::Over) {
                return;
            }
        }
    }

    /// Compares what the session has with what the target is, and rings.
    async fn look(
        &mut self,
        context: &Arc<IscsiContext>,
        name: &str,
        who: Who<'_>,
        bells: &Bells,
    ) -> Looked {
        let (exports, own) = (Arc::clone(&context.exports), self.name.clone());
        let Ok(found) = off_thread(move || exports.target(&own)).await else {
            return Looked::Over;
        };
        let Some(info) = found.filter(|info| info.id == self.id) else {
            let _ = bells.send(Bell::Deleted);
            return Looked::Over;
        };
        let is_there = |number: &Number| info.units.iter().any(|unit| unit.number == *number);
        let gone: Vec<Number> =
            self.have.iter().copied().filter(|number| !is_there(number)).collect();
        self.have.retain(|number| is_there(number));
        // First: who waits for these may keep others closed.
        if !gone.is_empty() && bells.send(Bell::Units(gone, Vec::new())).is_err() {
            return Looked::Over;
        }
        if info.access != self.access {
            // The initiator has not shown that it has this access: its next login does.
            tracing::info!(name, "the access was changed: a session gets no units any more");
            return Looked::Done;
        }
        let new = match self.open_new(context, name, &info, who).await {
            Ok(Ok(new)) => new,
            Ok(Err(NotNow::Closed(volume))) => return Looked::Closed(volume),
            Ok(Err(NotNow::Refused(Refusal { why, .. }))) => {
                tracing::warn!(name, why, "units that were added are not opened");
                return Looked::Done;
            }
            Err(_) => return Looked::Over,
        };
        match new.is_empty() || bells.send(Bell::Units(Vec::new(), new)).is_ok() {
            true => Looked::Done,
            false => Looked::Over,
        }
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        self.context.targets.opened.leave(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use units::Seq;

    use super::Targets;

    #[test]
    fn names_are_of_the_pool_and_units_differ() {
        let targets = Targets::new(0x1234_5678_9abc_def0, None);
        let name = targets.name_of("Pg_data").expect("a name");
        assert_eq!(name, "iqn.2026-11.local.hindsight.12345678::1pg:0data");
        let identities = [(1, None), (2, None), (1, Some(Seq(5))), (1, Some(Seq(6)))]
            .map(|unit| targets.identity(&name, unit));
        for (index, one) in identities.iter().enumerate() {
            for other in &identities[..index] {
                assert_ne!((one.naa_bytes(), &one.serial), (other.naa_bytes(), &other.serial));
            }
        }
    }
}
