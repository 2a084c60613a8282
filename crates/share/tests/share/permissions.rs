//! Who may do what, and what changes with it: owners, groups, others, root; setuid and setgid;
//! sticky directories; times.

use units::{FileId, WallTime};

use crate::memory::Memory;
use crate::share::{
    Access, Create, Credentials, ErrorKind, Place, Result, SetAttributes, SetTime, Share, Special,
    Transaction, Tree, Wait,
};
use crate::world::{assert_sound, caller, make};

type Outcome<T = ()> = std::result::Result<T, ErrorKind>;

fn user(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
    Credentials { uid, gid, groups: groups.to_vec() }
}

fn mode(mode: u16) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

/// A share in which one thing after the other is tried.
struct Tried<'m> {
    share: Share<&'m Memory>,
    top: FileId,
}

impl<'m> Tried<'m> {
    fn new(memory: &'m Memory) -> Tried<'m> {
        let share = make(memory);
        let top = share.tree(Wait::May).expect("usable").top().expect("a top");
        Tried { share, top }
    }

    fn once<'d, T>(
        &self,
        update: impl FnOnce(&mut Transaction<'_, 'd, &'m Memory>) -> Result<T>,
    ) -> Outcome<T> {
        let mut transaction = self.share.begin(Wait::May).expect("usable");
        let done = update(&mut transaction).map_err(|error| error.kind);
        transaction.commit().expect("it is written");
        assert_sound(&self.share);
        done
    }

    fn directory(&self, user: &Credentials, at: FileId, name: &str, set: u16) -> FileId {
        let made =
            self.once(|t| t.make_directory(&caller(user, 1), at, name.as_bytes(), &mode(set)));
        made.expect("it is made").id
    }

    fn file(&self, user: &Credentials, at: FileId, name: &str, set: u16) -> Outcome<FileId> {
        let set = mode(set);
        let how = Create::Guarded(&set);
        self.once(|t| t.create(&caller(user, 1), at, name.as_bytes(), how)).map(|made| made.id)
    }

    fn set(&self, user: &Credentials, id: FileId, set: SetAttributes) -> Outcome {
        self.once(|t| t.set_attributes(&caller(user, 1), id, &set, None)).map(drop)
    }

    fn mode_of(&self, id: FileId) -> u16 {
        self.share.tree(Wait::May).expect("usable").attributes(id).expect("it is there").mode
    }

    fn read(&self, user: &Credentials, id: FileId) -> Outcome {
        let read = self.share.read(user, id, 0, &mut [0; 10], Wait::May);
        read.map(drop).map_err(|error| error.kind)
    }

    fn write(&self, user: &Credentials, id: FileId) -> Outcome {
        self.once(|t| t.write(&caller(user, 1), id, 0, b"bytes")).map(drop)
    }
}

const DENIED: Outcome = Err(ErrorKind::Access);
const NOT_PERMITTED: Outcome = Err(ErrorKind::NotPermitted);

#[test]
fn the_mode_says_who_reads_writes_and_lists() {
    let memory = Memory::default();
    let t = Tried::new(&memory);
    let [root, owner] = [Credentials::root(), user(1000, 100, &[])];
    let [member, second, other] = [user(7, 100, &[]), user(8, 5, &[9, 100]), user(9, 5, &[])];
    let open = t.directory(&root, t.top, "open", 0o777);
    let file = t.file(&owner, open, "file", 0o640).expect("it is made");
    for (who, may_read, may_write) in [
        (&root, true, true),
        (&owner, true, true),
        (&member, true, false),
        (&second, true, false),
        (&other, false, false),
    ] {
        assert_eq!(t.read(who, file).is_ok(), may_read, "{who:?}");
        assert_eq!(t.write(who, file).is_ok(), may_write, "{who:?}");
        let access =
            t.share.tree(Wait::May).expect("usable").access(who, file).expect("it is there");
        assert_eq!((access.has(Access::READ), access.has(Access::MODIFY)), (may_read, may_write));
    }
    assert_eq!(t.read(&other, file), DENIED);
    // The owner may go on with a file that it took its own rights from, and execute means read.
    t.set(&owner, file, mode(0o401)).expect("the owner may");
    assert_eq!(t.write(&owner, file), Ok(()));
    assert_eq!((t.read(&other, file), t.write(&other, file)), (Ok(()), DENIED));
    let access = t.share.tree(Wait::May).expect("usable").access(&root, file).expect("it is there");
    assert!(access.has(Access::EXECUTE));
    t.set(&owner, file, mode(0o600)).expect("the owner may");
    assert!(
        !t.share
            .tree(Wait::May)
            .expect("usable")
            .access(&root, file)
            .expect("it is there")
            .has(Access::EXECUTE)
    );

    let closed = t.directory(&owner, open, "closed", 0o710);
    t.file(&owner, closed, "in", 0o666).expect("it is made");
    let tree = t.share.tree(Wait::May).expect("usable");
    let look_up = |who| tree.look_up(who, closed, b"in").map(drop).map_err(|error| error.kind);
    let list = |who| {
        let listed = tree.read_directory(who, closed, 0, &mut |_| true);
        listed.map(drop).map_err(|error| error.kind)
    };
    assert_eq!((look_up(&owner), look_up(&member), look_up(&other)), (Ok(()), Ok(()), DENIED));
    assert_eq!((list(&owner), list(&member), list(&root)), (Ok(()), DENIED, Ok(())));
    drop(tree);
    assert_eq!(t.file(&member, closed, "new", 0o666).map(drop), DENIED);
    assert_eq!(t.once(|x| x.remove(&caller(&member, 1), closed, b"in")), DENIED);
    assert_eq!(t.once(|x| x.remove(&caller(&other, 1), closed, b"none")), DENIED);
    let none = t.once(|x| x.remove(&caller(&member, 1), closed, b"none"));
    assert_eq!(none, Err(ErrorKind::NotFound), "the name is looked up first");
}

#[test]
fn only_the_owner_and_root_change_modes_and_only_root_gives_away() {
    let memory = Memory::default();
    let t = Tried::new(&memory);
    let [root, owner, other] = [Credentials::root(), user(10, 100, &[7]), user(11, 100, &[])];
    let open = t.directory(&root, t.top, "open", 0o777);
    let file = t.file(&owner, open, "file", 0o666).expect("it is made");
    assert_eq!(t.set(&other, file, mode(0o777)), NOT_PERMITTED);
    let uid = |uid| SetAttributes { uid: Some(uid), ..SetAttributes::default() };
    let gid = |gid| SetAttributes { gid: Some(gid), ..SetAttributes::default() };
    assert_eq!(t.set(&owner, file, uid(11)), NOT_PERMITTED);
    assert_eq!(t.set(&owner, file, uid(10)), Ok(()));
    assert_eq!(t.set(&other, file, uid(10)), NOT_PERMITTED);
    assert_eq!(t.set(&owner, file, gid(7)), Ok(()));
    assert_eq!(t.set(&owner, file, gid(8)), NOT_PERMITTED);
    assert_eq!(t.set(&other, file, gid(100)), NOT_PERMITTED);
    assert_eq!(t.set(&root, file, gid(8)), Ok(()));
    // Not in its group: no setgid.
    assert_eq!(t.set(&owner, file, mode(0o6755)), Ok(()));
    assert_eq!(t.mode_of(file), 0o4755);
    assert_eq!(t.set(&root, file, mode(0o6755)), Ok(()));
    assert_eq!(t.set(&owner, file, gid(7)), Ok(()));
    assert_eq!(t.mode_of(file), 0o755);
    assert_eq!(t.set(&root, file, uid(12)), Ok(()));
    assert_eq!(t.set(&owner, file, mode(0o600)), NOT_PERMITTED);
    let special = |who, special| {
        t.once(|x| x.make_node(&caller(who, 1), open, b"node", &mode(0o600), special)).map(drop)
    };
    assert_eq!(special(&owner, Special::CharacterDevice(1, 3)), NOT_PERMITTED);
    assert_eq!(special(&root, Special::CharacterDevice(1, 3)), Ok(()));
    let found =
        t.share.tree(Wait::May).expect("usable").look_up(&root, open, b"node").expect("it is made");
    assert_eq!(found.device, (1, 3));
}

#[test]
fn writing_and_cutting_take_setuid_and_setgid_away() {
    let memory = Memory::default();
    let t = Tried::new(&memory);
    let [root, owner] = [Credentials::root(), user(10, 100, &[])];
    let open = t.directory(&root, t.top, "open", 0o777);
    let file = t.file(&owner, open, "file", 0o600).expect("it is made");
    let size = SetAttributes { size: Some(3), ..SetAttributes::default() };
    for (before, after) in [(0o6777, 0o777), (0o6767, 0o2767), (0o4711, 0o711)] {
        for who in [&owner, &root] {
            let after = if who == &root { before } else { after };
            t.set(&owner, file, mode(before)).expect("the owner may");
            t.write(who, file).expect("it is written");
            assert_eq!(t.mode_of(file), after);
            t.set(&owner, file, mode(before)).expect("the owner may");
            t.set(who, file, size).expect("it is cut");
            assert_eq!(t.mode_of(file), after);
        }
    }
}

#[test]
fn a_directory_with_setgid_hands_its_group_down_and_a_sticky_one_keeps_names() {
    let memory = Memory::default();
    let t = Tried::new(&memory);
    let [root, one, two] = [Credentials::root(), user(10, 100, &[]), user(11, 101, &[])];
    let shared = t.directory(&root, t.top, "shared", 0o777);
    let group = SetAttributes { gid: Some(55), mode: Some(0o3777), ..SetAttributes::default() };
    t.set(&root, shared, group).expect("root may");
    let file = t.file(&one, shared, "file", 0o666).expect("it is made");
    let below = t.directory(&one, shared, "below", 0o755);
    // Not in its group, and asking for setgid by itself.
    let asked = t.directory(&one, shared, "asked", 0o2755);
    assert_eq!(t.mode_of(asked), 0o2755);
    let tree = t.share.tree(Wait::May).expect("usable");
    let [file, below] = [file, below].map(|id| tree.attributes(id).expect("it is there"));
    drop(tree);
    assert_eq!((file.gid, file.mode, below.gid, below.mode), (55, 0o666, 55, 0o2755));

    let remove = |who, name| t.once(|x| x.remove(&caller(who, 1), shared, name));
    assert_eq!(remove(&two, b"file"), NOT_PERMITTED);
    let place = |name| Place { directory: shared, name };
    let rename = |who, from, to| t.once(|x| x.rename(&caller(who, 1), place(from), place(to)));
    t.file(&two, shared, "mine", 0o666).expect("it is made");
    assert_eq!(rename(&two, b"file", b"other"), NOT_PERMITTED);
    assert_eq!(rename(&two, b"mine", b"file"), NOT_PERMITTED);
    assert_eq!(rename(&two, b"mine", b"yours"), Ok(()));
    assert_eq!(remove(&one, b"file"), Ok(()));
    assert_eq!(remove(&root, b"yours"), Ok(()));
}

#[test]
fn a_directory_moves_elsewhere_only_by_those_who_may_write_it() {
    let memory = Memory::default();
    let t = Tried::new(&memory);
    let [root, one, two] = [Credentials::root(), user(10, 100, &[]), user(11, 101, &[])];
    let open = t.directory(&root, t.top, "open", 0o777);
    let to = t.directory(&root, t.top, "to", 0o777);
    t.directory(&one, open, "moved", 0o755);
    let place = |directory, name| Place { directory, name };
    let rename = |who, from, to| t.once(|x| x.rename(&caller(who, 1), from, to));
    assert_eq!(rename(&two, place(open, b"moved"), place(to, b"moved")), DENIED);
    assert_eq!(rename(&two, place(open, b"moved"), place(open, b"other")), Ok(()));
    assert_eq!(rename(&one, place(open, b"other"), place(to, b"moved")), Ok(()));
    let found = t
        .share
        .tree(Wait::May)
        .expect("usable")
        .look_up(&root, to, b"moved")
        .expect("it was moved");
    let above = t
        .share
        .tree(Wait::May)
        .expect("usable")
        .look_up(&root, found.id, b"..")
        .expect("it has one");
    assert_eq!(above.id, to);
}

#[test]
fn times_are_set_by_the_owner_and_to_now_by_writers() {
    let memory = Memory::default();
    let t = Tried::new(&memory);
    let [root, owner, writer] = [Credentials::root(), user(10, 100, &[]), user(11, 100, &[])];
    let open = t.directory(&root, t.top, "open", 0o777);
    let file = t.file(&owner, open, "file", 0o620).expect("it is made");
    let old = WallTime::from_nanos(77);
    let set = |time| SetAttributes { modified: Some(time), ..SetAttributes::default() };
    assert_eq!(t.set(&writer, file, set(SetTime::To(old))), NOT_PERMITTED);
    assert_eq!(t.set(&writer, file, set(SetTime::Now)), Ok(()));
    assert_eq!(t.set(&user(12, 12, &[]), file, set(SetTime::Now)), DENIED);
    assert_eq!(t.set(&owner, file, set(SetTime::To(old))), Ok(()));
    let found = t.share.tree(Wait::May).expect("usable").attributes(file).expect("it is there");
    assert_eq!(found.modified, old);
    assert!(found.changed > found.created);

    // A guard has to be the last change, whole.
    let guarded = |guard| {
        t.once(|x| x.set_attributes(&caller(&owner, 1), file, &mode(0o600), Some(guard))).map(drop)
    };
    let off_by_one = WallTime::from_nanos(found.changed.as_nanos() - 1);
    assert_eq!(guarded(off_by_one), Err(ErrorKind::NotSync));
    assert_eq!(guarded(found.changed), Ok(()));
    assert_eq!(guarded(found.changed), Err(ErrorKind::NotSync));
}

#[test]
fn an_exclusive_create_is_known_again_until_attributes_are_set() {
    let memory = Memory::default();
    let t = Tried::new(&memory);
    let owner = user(10, 100, &[]);
    let open = t.directory(&Credentials::root(), t.top, "open", 0o777);
    let create = |verifier| {
        t.once(|x| x.create(&caller(&owner, 1), open, b"f", Create::Exclusive(verifier)))
    };
    let made = create(*b"verifier").expect("it is made");
    assert_eq!(create(*b"verifier"), Ok(made));
    assert_eq!(create(*b"another!"), Err(ErrorKind::Exists));
    assert_eq!(t.write(&owner, made.id), Ok(()));
    assert_eq!(create(*b"verifier").map(|again| again.id), Ok(made.id));
    // Nothing that is set is no change, and nobody needs a right for it.
    let attributes =
        || t.share.tree(Wait::May).expect("usable").attributes(made.id).expect("there");
    let before = attributes();
    assert_eq!(t.set(&user(99, 99, &[]), made.id, SetAttributes::default()), Ok(()));
    assert_eq!(attributes(), before);
    assert_eq!(create(*b"verifier").map(|again| again.id), Ok(made.id));
    t.set(&owner, made.id, mode(0o600)).expect("the owner may");
    assert_eq!(create(*b"verifier"), Err(ErrorKind::Exists));
    assert_eq!(create([0; 8]), Err(ErrorKind::Exists));
}
