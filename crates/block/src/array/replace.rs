//! Another device in the place of a member.

use format::label::{AREA_BYTES, MemberStanding, PATH_BYTES_MAX};

use super::{Array, is_readable, number_of};
use crate::layers::Standing;
use crate::stack::Stack;
use crate::{ArrayError, Candidate, DeviceError};

impl Array {
    /// Puts a blank device in the place of a member, which is brought up to date on it. A member
    /// that still works is put out first, if the others are enough.
    ///
    /// # Errors
    /// `Refused` when there is no such member, the others are not enough, the device is too small,
    /// or a layer under the mirror or parity keeps something of its own on it; the devices'.
    pub fn replace(&self, member: usize, with: Candidate, id: u128) -> Result<(), ArrayError> {
        let shared = &self.shared;
        let refused =
            |what: String, hint: &str| ArrayError::Refused { what, hint: hint.to_owned() };
        let Some(there) = shared.members.get(member) else {
            return Err(refused(format!("there is no member {member}"), ""));
        };
        let Some(device) = with.device else {
            return Err(refused(format!("{} is not there", with.path), ""));
        };
        if !is_plain_below_a_mirror(&shared.stack, member) {
            let what =
                format!("{} is under a layer that cannot be made anew by itself", there.path());
            return Err(refused(
                what,
                "only what lies right under a mirror or parity, or under a stripe of one",
            ));
        }
        let wanted = there.data_bytes() + AREA_BYTES;
        if device.len_bytes() < wanted {
            let what = format!("{} has {} bytes", with.path, device.len_bytes());
            return Err(refused(what, &format!("at least {wanted} are needed")));
        }
        let stays = |m: usize| m != member && shared.standing_of(m) == Standing::In;
        if !is_readable(&shared.stack, &stays) {
            let what = format!("what {} has the others do not", there.path());
            return Err(refused(what, "wait until all others are up to date"));
        }
        let _work = self.work.lock();
        let mut book = shared.book.lock();
        if book.label.members[member].standing != MemberStanding::Out {
            let failure = replaced(&there.path());
            shared.put_out_with(&mut book, &[member], &failure)?;
        }
        let (before, was) = (there.place(), book.label.members[member].clone());
        there.replace(id, with.path.clone(), Some(device));
        let path =
            if with.path.len() <= PATH_BYTES_MAX { with.path.clone() } else { String::new() };
        let row = &mut book.label.members[member];
        (row.id, row.path, row.standing) = (id, path, MemberStanding::Stale);
        // It has nothing of what was ever written.
        book.all_is_stale();
        let outcome = shared.write_regions(&mut book).and_then(|()| shared.write_labels(&mut book));
        if let Err(error) = outcome {
            book.label.members[member] = was;
            let (id, path, device) = before;
            there.replace(id, path, device);
            return Err(error.into());
        }
        shared.set_standing(member, Standing::Stale);
        let behind = book.begin_behind();
        shared.behind.store(behind, std::sync::atomic::Ordering::Relaxed);
        shared.tell(member, "member-replaced", format!("in the place of {}", before.1));
        Ok(())
    }

    /// The number of the member at a path.
    #[must_use]
    pub fn member_at(&self, path: &str) -> Option<usize> {
        self.shared.members.iter().position(|member| member.path() == path)
    }
}

/// Whether nothing but stripes is between a member and a mirror or parity over it.
fn is_plain_below_a_mirror(stack: &Stack, member: usize) -> bool {
    let has = |stack: &Stack| stack.members().into_iter().any(|m| number_of(m) == member);
    match stack {
        Stack::Member(_) => false,
        Stack::Mirror { below } | Stack::Parity { below, .. } => below
            .iter()
            .any(|side| has(side) && (is_plain(side) || is_plain_below_a_mirror(side, member))),
        Stack::Stripe { below, .. } => {
            below.iter().any(|s| has(s) && is_plain_below_a_mirror(s, member))
        }
        Stack::Integrity { below, .. }
        | Stack::Crypt { below, .. }
        | Stack::Delay { below, .. } => is_plain_below_a_mirror(below, member),
    }
}

fn is_plain(stack: &Stack) -> bool {
    match stack {
        Stack::Member(_) => true,
        Stack::Stripe { below, .. } => below.iter().all(is_plain),
        _ => false,
    }
}

fn replaced(path: &str) -> DeviceError {
    DeviceError {
        kind: crate::DeviceErrorKind::Io,
        operation: crate::Operation::Write,
        offset: 0,
        length_bytes: 0,
        device: path.to_owned(),
        source: std::io::Error::other("it is replaced"),
    }
}
