//! Any call and any results, for round trips. Names and data are borrowed, so strategies make seeds
//! from which a test builds the values.

use hindsight_wire as wire;
use proptest::prelude::{Just, Strategy, any};
use proptest::{collection, option, prop_oneof, sample};
use wire::nfs3::{
    Access, AccessOk, Call, CommitOk, CreateHow, CreateOk, DirOpArgs, Fail, Fattr3, FileHandle,
    FsProperties, FsinfoOk, FsstatOk, Ftype3, LinkAttributes, LookupOk, MknodData, Name, Nfspath3,
    Nfsstat3, Nfstime3, PathconfOk, Procedure, ReadOk, ReaddirOk, ReadlinkOk, RenameWcc, Res,
    Results, Sattr3, SetTime, Specdata3, StableHow, WccAttr, WccData, WriteOk,
};

fn any_handle() -> impl Strategy<Value = FileHandle> {
    collection::vec(any::<u8>(), 0..65)
        .prop_map(|bytes| FileHandle::new(&bytes).expect("a short handle"))
}

fn any_time() -> impl Strategy<Value = Nfstime3> {
    any::<(u32, u32)>().prop_map(|(seconds, nseconds)| Nfstime3 { seconds, nseconds })
}

fn any_set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![
        Just(SetTime::DontChange),
        Just(SetTime::ToServerTime),
        any_time().prop_map(SetTime::ToClientTime),
    ]
}

fn any_sattr() -> impl Strategy<Value = Sattr3> {
    let fields = any::<(Option<u32>, Option<u32>, Option<u32>, Option<u64>)>();
    (fields, any_set_time(), any_set_time()).prop_map(|((mode, uid, gid, size), atime, mtime)| {
        Sattr3 { mode, uid, gid, size, atime, mtime }
    })
}

/// What a call is made of.
#[derive(Clone, Debug)]
pub struct CallSeed {
    procedure: Procedure,
    handles: [FileHandle; 2],
    texts: [Vec<u8>; 2],
    attributes: Sattr3,
    guard: Option<Nfstime3>,
    words: (u64, u32, u32),
    verifier: [u8; 8],
    stable: StableHow,
    kind: u8,
}

pub fn any_call() -> impl Strategy<Value = CallSeed> {
    let text = || collection::vec(any::<u8>(), 0..300);
    (
        (sample::select(Procedure::ALL), sample::select(StableHow::ALL), any::<u8>()),
        [any_handle(), any_handle()],
        [text(), text()],
        (any_sattr(), option::of(any_time())),
        (any::<(u64, u32, u32)>(), any::<[u8; 8]>()),
    )
        .prop_map(|(choice, handles, texts, (attributes, guard), (words, verifier))| {
            let (procedure, stable, kind) = choice;
            CallSeed { procedure, handles, texts, attributes, guard, words, verifier, stable, kind }
        })
}

impl CallSeed {
    pub fn call(&self) -> Call<'_> {
        let [object, other] = self.handles;
        let (file, dir, fsroot) = (object, object, object);
        let place = DirOpArgs { dir: object, name: Name::new(&self.texts[0]) };
        let (offset, count, maxcount) = self.words;
        let (attributes, cookieverf) = (self.attributes, self.verifier);
        match self.procedure {
            Procedure::Null => Call::Null,
            Procedure::Getattr => Call::Getattr { object },
            Procedure::Setattr => {
                Call::Setattr { object, new_attributes: attributes, guard: self.guard }
            }
            Procedure::Lookup => Call::Lookup { what: place },
            Procedure::Access => Call::Access { object, access: Access(count) },
            Procedure::Readlink => Call::Readlink { symlink: object },
            Procedure::Read => Call::Read { file, offset, count },
            Procedure::Write => {
                Call::Write { file, offset, stable: self.stable, data: &self.texts[1] }
            }
            Procedure::Create => Call::Create { place, how: self.create_how() },
            Procedure::Mkdir => Call::Mkdir { place, attributes },
            Procedure::Symlink => {
                Call::Symlink { place, attributes, data: Nfspath3::new(&self.texts[1]) }
            }
            Procedure::Mknod => Call::Mknod { place, what: self.mknod_data() },
            Procedure::Remove => Call::Remove { object: place },
            Procedure::Rmdir => Call::Rmdir { object: place },
            Procedure::Rename => {
                let to = DirOpArgs { dir: other, name: Name::new(&self.texts[1]) };
                Call::Rename { from: place, to }
            }
            Procedure::Link => Call::Link { file: other, link: place },
            Procedure::Readdir => Call::Readdir { dir, cookie: offset, cookieverf, count },
            Procedure::Readdirplus => {
                let (cookie, dircount) = (offset, count);
                Call::Readdirplus { dir, cookie, cookieverf, dircount, maxcount }
            }
            Procedure::Fsstat => Call::Fsstat { fsroot },
            Procedure::Fsinfo => Call::Fsinfo { fsroot },
            Procedure::Pathconf => Call::Pathconf { object },
            Procedure::Commit => Call::Commit { file, offset, count },
        }
    }

    fn create_how(&self) -> CreateHow {
        match self.kind % 3 {
            0 => CreateHow::Unchecked(self.attributes),
            1 => CreateHow::Guarded(self.attributes),
            _ => CreateHow::Exclusive(self.verifier),
        }
    }

    fn mknod_data(&self) -> MknodData {
        let device = Specdata3 { specdata1: self.words.1, specdata2: self.words.2 };
        match self.kind % 5 {
            0 => MknodData::Chr(self.attributes, device),
            1 => MknodData::Blk(self.attributes, device),
            2 => MknodData::Sock(self.attributes),
            3 => MknodData::Fifo(self.attributes),
            // Neither of those above.
            _ => MknodData::Other(self.words.1 | 1 << 31),
        }
    }
}

fn any_fattr() -> impl Strategy<Value = Fattr3> {
    (
        sample::select(Ftype3::ALL),
        any::<[u32; 6]>(),
        any::<[u64; 4]>(),
        [any_time(), any_time(), any_time()],
    )
        .prop_map(|(ftype, short, long, [atime, mtime, ctime])| {
            let [mode, nlink, uid, gid, specdata1, specdata2] = short;
            let [size, used, fsid, fileid] = long;
            let rdev = Specdata3 { specdata1, specdata2 };
            Fattr3 {
                ftype,
                mode,
                nlink,
                uid,
                gid,
                size,
                used,
                rdev,
                fsid,
                fileid,
                atime,
                mtime,
                ctime,
            }
        })
}

fn any_wcc() -> impl Strategy<Value = WccData> {
    let before = (any::<u64>(), any_time(), any_time()).prop_map(|(size, mtime, ctime)| WccAttr {
        size,
        mtime,
        ctime,
    });
    (option::of(before), option::of(any_fattr()))
        .prop_map(|(before, after)| WccData { before, after })
}

/// What results are made of.
#[derive(Clone, Debug)]
pub struct ResultsSeed {
    pub procedure: Procedure,
    failure: Option<Nfsstat3>,
    fattr: Fattr3,
    attributes: [Option<Fattr3>; 2],
    wcc: [WccData; 2],
    handle: FileHandle,
    has_handle: bool,
    text: Vec<u8>,
    short: [u32; 8],
    long: [u64; 6],
    flags: [bool; 4],
    verf: [u8; 8],
    committed: StableHow,
}

pub fn any_results() -> impl Strategy<Value = ResultsSeed> {
    (
        (sample::select(Procedure::ALL), option::of(sample::select(Nfsstat3::ALL))),
        (any_fattr(), [option::of(any_fattr()), option::of(any_fattr())], [any_wcc(), any_wcc()]),
        (any_handle(), any::<bool>(), collection::vec(any::<u8>(), 0..200)),
        (any::<[u32; 8]>(), any::<[u64; 6]>(), any::<[bool; 4]>(), any::<[u8; 8]>()),
        sample::select(StableHow::ALL),
    )
        .prop_map(|(choice, attributes, named, words, committed)| {
            let (procedure, failure) = choice;
            let (fattr, attributes, wcc) = attributes;
            let (handle, has_handle, text) = named;
            let (short, long, flags, verf) = words;
            ResultsSeed {
                procedure,
                failure,
                fattr,
                attributes,
                wcc,
                handle,
                has_handle,
                text,
                short,
                long,
                flags,
                verf,
                committed,
            }
        })
}

impl ResultsSeed {
    /// The success, or the failure if it is one.
    fn either<T, A>(&self, ok: T, attributes: A) -> Res<T, A> {
        self.failure.map_or(Ok(ok), |status| Err(Fail { status, attributes }))
    }

    pub fn results(&self) -> Results<'_> {
        let [post, second] = self.attributes;
        let [wcc, other] = self.wcc;
        let (object, count, verf) = (self.handle, self.short[0], self.verf);
        let obj = self.has_handle.then_some(object);
        let created = CreateOk { obj, obj_attributes: post, dir_wcc: wcc };
        let made = self.either(created, other);
        let changed = self.either(wcc, other);
        let listed = self.either(ReaddirOk { dir_attributes: post, cookieverf: verf }, second);
        match self.procedure {
            Procedure::Null => Results::Null,
            Procedure::Getattr => Results::Getattr(self.either(self.fattr, ())),
            Procedure::Setattr => Results::Setattr(changed),
            Procedure::Lookup => {
                let ok = LookupOk { object, obj_attributes: post, dir_attributes: second };
                Results::Lookup(self.either(ok, second))
            }
            Procedure::Access => {
                let ok = AccessOk { obj_attributes: post, access: Access(count) };
                Results::Access(self.either(ok, second))
            }
            Procedure::Readlink => {
                let ok = ReadlinkOk { symlink_attributes: post, data: &self.text };
                Results::Readlink(self.either(ok, second))
            }
            Procedure::Read => {
                let ok = ReadOk { file_attributes: post, count, eof: self.flags[0] };
                Results::Read(self.either(ok, second))
            }
            Procedure::Write => {
                let ok = WriteOk { file_wcc: wcc, count, committed: self.committed, verf };
                Results::Write(self.either(ok, other))
            }
            Procedure::Create => Results::Create(made),
            Procedure::Mkdir => Results::Mkdir(made),
            Procedure::Symlink => Results::Symlink(made),
            Procedure::Mknod => Results::Mknod(made),
            Procedure::Remove => Results::Remove(changed),
            Procedure::Rmdir => Results::Rmdir(changed),
            Procedure::Rename => {
                let ok = RenameWcc { fromdir_wcc: wcc, todir_wcc: other };
                Results::Rename(self.either(ok, ok))
            }
            Procedure::Link => {
                let ok = LinkAttributes { file_attributes: post, linkdir_wcc: wcc };
                Results::Link(self.either(ok, ok))
            }
            Procedure::Readdir => Results::Readdir(listed),
            Procedure::Readdirplus => Results::Readdirplus(listed),
            Procedure::Fsstat => Results::Fsstat(self.either(self.fsstat(), second)),
            Procedure::Fsinfo => Results::Fsinfo(self.either(self.fsinfo(), second)),
            Procedure::Pathconf => Results::Pathconf(self.either(self.pathconf(), second)),
            Procedure::Commit => {
                Results::Commit(self.either(CommitOk { file_wcc: wcc, verf }, other))
            }
        }
    }

    fn fsstat(&self) -> FsstatOk {
        let [tbytes, fbytes, abytes, tfiles, ffiles, afiles] = self.long;
        FsstatOk {
            obj_attributes: self.attributes[0],
            tbytes,
            fbytes,
            abytes,
            tfiles,
            ffiles,
            afiles,
            invarsec: self.short[0],
        }
    }

    fn fsinfo(&self) -> FsinfoOk {
        let [rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref, properties] = self.short;
        FsinfoOk {
            obj_attributes: self.attributes[0],
            rtmax,
            rtpref,
            rtmult,
            wtmax,
            wtpref,
            wtmult,
            dtpref,
            maxfilesize: self.long[0],
            time_delta: self.fattr.atime,
            properties: FsProperties(properties),
        }
    }

    fn pathconf(&self) -> PathconfOk {
        let [no_trunc, chown_restricted, case_insensitive, case_preserving] = self.flags;
        PathconfOk {
            obj_attributes: self.attributes[0],
            linkmax: self.short[0],
            name_max: self.short[1],
            no_trunc,
            chown_restricted,
            case_insensitive,
            case_preserving,
        }
    }
}
