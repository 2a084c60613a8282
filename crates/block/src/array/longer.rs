//! The only member of an array becomes longer while it is used.

use super::Array;
use super::add::Part;
use super::candidate::refused;
use super::grow::{check_length, wider};
use crate::stack::Stack;
use crate::{ArrayError, BlockDevice};

impl Array {
    /// Makes an array of one member longer while it is used: by what that has become, or by making
    /// it so long as to have these bytes. Returns its length.
    ///
    /// # Errors
    /// `Refused` when there are several members, or the one is being replaced; the device's.
    pub fn lengthen_member(&self, len_bytes: Option<u64>) -> Result<u64, ArrayError> {
        let _growing = self.growing.lock();
        let shared = &self.shared;
        shared.check_whole()?;
        let stack = shared.stack();
        if !matches!(*stack, Stack::Member(_)) {
            let what = "members that became longer are used when no server runs on the pool";
            return Err(refused(what, "stop it and give `--pool`, or add members with `--add`"));
        }
        // Nobody begins to replace it meanwhile.
        let _work = self.hold_work();
        let member = shared.member(0);
        if let Some(successor) = member.successor() {
            let what = format!("{} is being copied to {}", member.path(), successor.spare.path);
            return Err(refused(what, "wait until that is done"));
        }
        let (before, bytes) = (member.data_bytes(), member.lengthen_device(len_bytes)?);
        check_length(&member.path(), bytes)?;
        if bytes <= before {
            return Ok(before);
        }
        let _alone = self.hold_writers();
        let mut book = shared.book.lock();
        let mut label = book.label.clone();
        label.members[0].data_bytes = bytes;
        let (maps, _) = wider(&book.regions, &mut label, (before, bytes))?;
        let region_bytes = label.region_bytes;
        let (stack, text) = ((*stack).clone(), label.stack.clone());
        let part =
            Part { stack, text, rows: Vec::new(), members: Vec::new(), bytes: (before, bytes) };
        self.write_part(&mut book, (label, maps), &part)?;
        if region_bytes != shared.regions.region_bytes() {
            shared.regions.begin_again(region_bytes);
        }
        member.set_data_bytes(bytes);
        Ok(self.len_bytes())
    }
}
