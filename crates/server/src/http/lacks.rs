//! Refusals of callers who are known, and lack something.

use api::ProblemKind;
use units::Role;

use super::answer::{Answer, Refusal};
use crate::who::{AccessConfig, Caller};

/// Refuses a caller that has not this role.
pub(super) fn must_have(caller: &Caller, role: Role) -> Answer<()> {
    if caller.may(role) {
        return Ok(());
    }
    let text = format!("this needs the role {role}; {} is {}", caller.who, caller.role);
    Err(Refusal::new(ProblemKind::Forbidden, text).with_hint(format!(
        "an admin makes a token for it: hindsight token create NAME --role {role}"
    )))
}

/// Refuses to take history away for somebody elsewhere, where that is set.
pub(super) fn must_be_near(access: &AccessConfig, caller: &Caller) -> Answer<()> {
    if caller.may_take(access) {
        return Ok(());
    }
    let text = "this can take history away, and the server takes that over its unix socket alone";
    Err(Refusal::new(ProblemKind::Forbidden, text)
        .with_hint("[access] remote_deletes = false is set: name the server as unix:DIR/api.sock"))
}

/// Refuses a name for what is to be made that the caller would not see.
pub(super) fn must_see(caller: &Caller, name: &str) -> Answer<()> {
    if caller.sees(name) {
        return Ok(());
    }
    let text = format!("{} would not see a volume {name}", caller.who);
    let hint = format!("give it a name that one of these fits: {}", caller.patterns().join(" "));
    Err(Refusal::new(ProblemKind::Forbidden, text).with_hint(hint))
}

/// Refuses to name a file of the server's machine to somebody who may be elsewhere.
pub(super) fn must_be_local(caller: Option<&Caller>, what: &str, hint: &str) -> Answer<()> {
    if caller.is_some_and(|caller| caller.is_local) {
        return Ok(());
    }
    let text = format!("a file {what} the server's machine is only named over its unix socket");
    Err(Refusal::new(ProblemKind::Forbidden, text).with_hint(hint))
}
