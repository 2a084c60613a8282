//! A server of a disk in memory, and an initiator that sends what it is told to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use volume::TargetInfo;
use wire::iscsi::frame::Frame;
use wire::iscsi::{
    CommandRequest, Digests, Isid, LoginRequest, LoginResponse, LoginStatus, LogoutReason,
    LogoutRequest, NopOut, Request, Response, Serial, Stage, Tag, TaskAttribute, TaskFunction,
    TaskRequest, decode, encode, text,
};
use wire::scsi::Lun;

use crate::Attachments;
use crate::iscsi::{IscsiContext, Targets};
use crate::nbd::tests::memory::{Disk, MemoryExports};
use crate::serving::{DataThreads, Limits, Listeners, Serving};

pub(super) struct Rig {
    pub(super) address: SocketAddr,
    pub(super) disk: Arc<Disk>,
    pub(super) other: Arc<Disk>,
    /// Targets of several units.
    pub(super) made: Arc<Mutex<Vec<TargetInfo>>>,
    pub(super) target: String,
    pub(super) context: Arc<IscsiContext>,
    server: Option<DataThreads>,
}

impl Rig {
    pub(super) fn new() -> Rig {
        Rig::with(|_| {})
    }

    /// The same, whose address others reach as well.
    pub(super) fn exposed() -> Rig {
        Rig::with(|context| context.is_safe = |_| false)
    }

    /// The same, in a context that is changed first.
    pub(super) fn with(change: impl FnOnce(&mut IscsiContext)) -> Rig {
        let exports = MemoryExports::default();
        let (disk, other) = (Arc::clone(&exports.disk), Arc::clone(&exports.other));
        let made = Arc::clone(&exports.made);
        let serving = Serving {
            exports: Arc::new(exports),
            attachments: Arc::new(Attachments::default()),
            limits: Limits::default(),
            counters: Arc::default(),
            meters: Arc::default(),
            buffers: Arc::default(),
            taps: Arc::default(),
            room: Default::default(),
        };
        let mut context = IscsiContext::new(serving, Targets::new(1 << 40, None), false);
        change(&mut context);
        let context = Arc::new(context);
        let target = context.targets.name_of("disk").expect("a name");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        listener.set_nonblocking(true).expect("set");
        let address = listener.local_addr().expect("address");
        let front_end = Arc::clone(&context) as Arc<_>;
        let listeners = Listeners { front_end, unix: Vec::new(), tcp: vec![listener] };
        let server = DataThreads::start(2, vec![listeners]).expect("start");
        Rig { address, disk, other, made, target, context, server: Some(server) }
    }

    /// An initiator that is logged in, from a port of that number.
    pub(super) fn initiator(&self, port: u8) -> Initiator {
        let mut initiator = Initiator::new(self.address, port);
        assert_eq!(initiator.log_in(&self.target), LoginStatus::SUCCESS);
        // The attention of every new session.
        initiator.command(1, &[0; 6], 0, &[]);
        assert_eq!(initiator.status(), (1, 2));
        initiator
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.disk.open_gate();
        self.other.open_gate();
        self.server.take().expect("stopped once").stop();
    }
}

pub(super) struct Initiator {
    pub(super) socket: TcpStream,
    pub(super) cmd_sn: Serial,
    pub(super) isid: Isid,
    pub(super) tsih: u16,
    /// The unit that commands go to.
    pub(super) lun: Lun,
}

impl Initiator {
    pub(super) fn new(address: SocketAddr, port: u8) -> Initiator {
        let socket = TcpStream::connect(address).expect("connect");
        socket.set_nodelay(true).expect("set");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        let isid = Isid([0x80, 0, 0, 0, 0, port]);
        Initiator { socket, cmd_sn: Serial(0xffff_fffe), isid, tsih: 0, lun: Lun(0) }
    }

    pub(super) fn send(&mut self, request: &Request, data: &[u8]) {
        let mut pdu = Vec::new();
        encode::pdu(&encode::request(request), data, Digests::default(), &mut pdu);
        self.socket.write_all(&pdu).expect("sent");
    }

    /// The next PDU of the target; `None` at the end.
    pub(super) fn receive(&mut self) -> Option<(Response, Vec<u8>)> {
        let mut bytes = vec![0; 48];
        self.socket.read_exact(&mut bytes).ok()?;
        let frame = Frame::measure(&bytes, Digests::default(), 1 << 20).expect("a frame");
        let frame = frame.expect("a whole header");
        bytes.resize(frame.total_bytes(), 0);
        self.socket.read_exact(&mut bytes[48..]).ok()?;
        let pdu = frame.pdu(&bytes).expect("whole");
        Some((decode::response(pdu.bhs).expect("a response"), pdu.data.to_vec()))
    }

    pub(super) fn log_in(&mut self, target: &str) -> LoginStatus {
        let name = "iqn.2026-11.org.example:test";
        self.log_in_with(&[("InitiatorName", name), ("TargetName", target)])
    }

    /// Logs in with one request.
    pub(super) fn log_in_with(&mut self, pairs: &[(&str, &str)]) -> LoginStatus {
        self.ask((Stage::Operational, Some(Stage::FullFeature)), pairs).0.status
    }

    /// One request of a login in a stage, which wants to go on to another; the answer with its
    /// text.
    pub(super) fn ask(
        &mut self,
        (stage, next): (Stage, Option<Stage>),
        pairs: &[(&str, &str)],
    ) -> (LoginResponse, Vec<(String, String)>) {
        let mut said = Vec::new();
        pairs.iter().for_each(|(key, value)| text::put(key, value, &mut said));
        let request = LoginRequest {
            continues: false,
            stage,
            next,
            version_max: 0,
            version_min: 0,
            isid: self.isid,
            tsih: self.tsih,
            task_tag: Tag(7),
            cid: 1,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: Serial(5),
        };
        self.send(&Request::Login(request), &said);
        match self.receive() {
            Some((Response::Login(response), data)) => {
                let pairs = text::parse(&data).expect("a text");
                let owned = pairs.iter().map(|p| (p.key.to_owned(), p.value.to_owned()));
                (response, owned.collect())
            }
            other => panic!("no answer to a login: {other:?}"),
        }
    }

    /// A command; it reads `expected` bytes, or sends `data` with it.
    pub(super) fn command(&mut self, tag: u32, cdb: &[u8], expected: u32, data: &[u8]) {
        let request = self.request(tag, cdb, expected, data.len());
        self.send(&Request::Command(request), data);
        self.cmd_sn = self.cmd_sn.next();
    }

    /// A command that is not sent yet.
    pub(super) fn request(
        &self,
        tag: u32,
        cdb: &[u8],
        reads: u32,
        writes: usize,
    ) -> CommandRequest {
        let mut whole = [0; 16];
        whole[..cdb.len()].copy_from_slice(cdb);
        CommandRequest {
            immediate: false,
            is_final: true,
            reads: reads > 0,
            writes: writes > 0,
            attribute: TaskAttribute::Simple,
            lun: self.lun,
            task_tag: Tag(tag),
            expected_bytes: reads.max(writes as u32),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: Serial(0),
            cdb: whole,
        }
    }

    /// A function of task management.
    pub(super) fn manage(&mut self, tag: u32, function: TaskFunction, referenced: u32) {
        let request = TaskRequest {
            immediate: true,
            function,
            lun: self.lun,
            task_tag: Tag(tag),
            referenced_tag: Tag(referenced),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: Serial(0),
            ref_cmd_sn: Serial(0),
            exp_data_sn: Serial(0),
        };
        self.send(&Request::Task(request), &[]);
    }

    /// Asks whether the target is there.
    pub(super) fn nop(&mut self, tag: u32) {
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, Serial(0));
        let (task_tag, transfer_tag) = (Tag(tag), Tag::NONE);
        let lun = Lun(0);
        let nop = NopOut { immediate: true, lun, task_tag, transfer_tag, cmd_sn, exp_stat_sn };
        self.send(&Request::NopOut(nop), &[]);
    }

    /// Logs out, until the connection has ended.
    pub(super) fn log_out(&mut self) {
        let request = LogoutRequest {
            immediate: true,
            reason: LogoutReason::CLOSE_SESSION,
            task_tag: Tag(99),
            cid: 1,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: Serial(0),
        };
        self.send(&Request::Logout(request), &[]);
        match self.receive() {
            Some((Response::Logout(_), _)) => {}
            other => panic!("no answer to a logout: {other:?}"),
        }
        assert!(self.receive().is_none(), "its connection ends");
    }

    /// The sense key and code of the next SCSI response, which has some.
    pub(super) fn sense(&mut self) -> (u8, u8, u8) {
        match self.receive() {
            Some((Response::Command(response), data)) if response.status.0 == 2 => {
                (data[4] & 0xf, data[14], data[15])
            }
            other => panic!("no sense: {other:?}"),
        }
    }

    /// The data of the next answer, which has some.
    pub(super) fn data(&mut self) -> Vec<u8> {
        match self.receive() {
            Some((Response::DataIn(_), data)) => data,
            other => panic!("no data: {other:?}"),
        }
    }

    /// The tag and status of the next SCSI response.
    pub(super) fn status(&mut self) -> (u32, u8) {
        match self.receive() {
            Some((Response::Command(response), _)) => (response.task_tag.0, response.status.0),
            other => panic!("no SCSI response: {other:?}"),
        }
    }
}
