//! An iSCSI initiator that has one command under way at a time: as many as there are to be
//! requests in flight make a load.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use wire::iscsi::frame::Frame;
use wire::iscsi::limits::BHS_BYTES;
use wire::iscsi::{
    CommandRequest, Digests, Isid, LoginRequest, LoginStatus, NopOut, Request, Response, Serial,
    Stage, Tag, TaskAttribute, decode, encode, text,
};
use wire::scsi::command::{Range, Transfer};
use wire::scsi::encode::Form;
use wire::scsi::{Command, Lun, Sense, Status};

/// Longest read or write.
pub const COMMAND_BYTES_MAX: usize = 64 << 10;
const SECTOR_BYTES: u64 = 512;
const SEGMENT_BYTES: u32 = 256 << 10;
/// A target that says nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// Attentions that a new session has at most.
const ATTENTIONS_MAX: usize = 8;

/// A session on the first unit of a target.
pub struct Initiator {
    socket: TcpStream,
    cmd_sn: Serial,
    exp_stat_sn: Serial,
    tag: u32,
}

impl Initiator {
    /// Logs in, as the port of that number.
    pub fn log_in(address: SocketAddr, target: &str, port: u32) -> anyhow::Result<Initiator> {
        let socket = TcpStream::connect(address).with_context(|| address.to_string())?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let serial = Serial(1);
        let mut initiator = Initiator { socket, cmd_sn: serial, exp_stat_sn: serial, tag: 0 };
        initiator.negotiate(target, port).with_context(|| format!("login to {target}"))?;
        for _ in 0..ATTENTIONS_MAX {
            if initiator.command(&Command::TestUnitReady, &[], &mut [])? == Status::GOOD {
                return Ok(initiator);
            }
        }
        bail!("{target} is not ready")
    }

    fn negotiate(&mut self, target: &str, port: u32) -> anyhow::Result<()> {
        // A target takes 16 sessions of an initiator.
        let number = port / 16;
        let name = format!("iqn.2026-11.org.example:lab-{}-{number}", std::process::id());
        let longest = COMMAND_BYTES_MAX.to_string();
        let pairs = [
            ("InitiatorName", name.as_str()),
            ("TargetName", target),
            ("SessionType", "Normal"),
            ("HeaderDigest", "None"),
            ("DataDigest", "None"),
            ("ImmediateData", "Yes"),
            ("FirstBurstLength", &longest),
            ("MaxRecvDataSegmentLength", &SEGMENT_BYTES.to_string()),
        ];
        let mut said = Vec::new();
        pairs.iter().for_each(|(key, value)| text::put(key, value, &mut said));
        let [_, a, b, c] = port.to_be_bytes();
        self.send(
            &Request::Login(LoginRequest {
                continues: false,
                stage: Stage::Operational,
                next: Some(Stage::FullFeature),
                version_max: 0,
                version_min: 0,
                isid: Isid([0x80, 0, 0, a, b, c]),
                tsih: 0,
                task_tag: Tag(0),
                cid: 1,
                cmd_sn: self.cmd_sn,
                exp_stat_sn: self.exp_stat_sn,
            }),
            &said,
        )?;
        let (response, data) = self.receive()?;
        let Response::Login(response) = response else { bail!("{response:?}") };
        ensure!(response.status == LoginStatus::SUCCESS, "{:?}", response.status);
        ensure!(response.next == Some(Stage::FullFeature), "it goes on");
        self.exp_stat_sn = response.numbers.stat_sn.next();
        let pairs = text::parse(&data)?;
        let value = |key: &str| pairs.iter().find(|pair| pair.key == key).map(|pair| pair.value);
        let number = |key: &str| value(key).and_then(|it| it.parse::<usize>().ok());
        let takes = |key: &str| number(key) >= Some(COMMAND_BYTES_MAX);
        let is_enough = takes("FirstBurstLength") && takes("MaxRecvDataSegmentLength");
        ensure!(
            is_enough && value("ImmediateData") == Some("Yes"),
            "writes go with their commands"
        );
        Ok(())
    }

    /// Fills `buffer`.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> anyhow::Result<()> {
        let command = Command::Read(transfer(offset, buffer.len())?);
        let status = self.command(&command, &[], buffer)?;
        ensure!(status == Status::GOOD, "a read ended with {status:?}");
        Ok(())
    }

    /// Writes `bytes`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> anyhow::Result<()> {
        let command = Command::Write(transfer(offset, bytes.len())?);
        let status = self.command(&command, bytes, &mut [])?;
        ensure!(status == Status::GOOD, "a write ended with {status:?}");
        Ok(())
    }

    /// Makes durable what was written.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        let range = Range { lba: 0, blocks: 0 };
        let command = Command::SynchronizeCache { range, immediate: false };
        let status = self.command(&command, &[], &mut [])?;
        ensure!(status == Status::GOOD, "a flush ended with {status:?}");
        Ok(())
    }

    fn send(&mut self, request: &Request, data: &[u8]) -> anyhow::Result<()> {
        let mut pdu = Vec::with_capacity(BHS_BYTES + data.len());
        encode::pdu(&encode::request(request), data, Digests::default(), &mut pdu);
        Ok(self.socket.write_all(&pdu)?)
    }

    fn receive(&mut self) -> anyhow::Result<(Response, Vec<u8>)> {
        let mut bytes = vec![0; BHS_BYTES];
        self.socket.read_exact(&mut bytes)?;
        let frame = Frame::measure(&bytes, Digests::default(), SEGMENT_BYTES)?;
        let frame = frame.context("a whole header")?;
        bytes.resize(frame.total_bytes(), 0);
        self.socket.read_exact(&mut bytes[BHS_BYTES..])?;
        let pdu = frame.pdu(&bytes).context("a whole PDU")?;
        Ok((decode::response(pdu.bhs)?, pdu.data.to_vec()))
    }

    /// Carries out a command that sends or reads these bytes; its status.
    fn command(
        &mut self,
        command: &Command,
        sent: &[u8],
        read: &mut [u8],
    ) -> anyhow::Result<Status> {
        self.tag = (self.tag + 1) & 0xffff;
        let form = match command {
            Command::TestUnitReady => Form::Six,
            _ => Form::Sixteen,
        };
        let request = CommandRequest {
            immediate: false,
            is_final: true,
            reads: !read.is_empty(),
            writes: !sent.is_empty(),
            attribute: TaskAttribute::Simple,
            lun: Lun(0),
            task_tag: Tag(self.tag),
            expected_bytes: u32::try_from(sent.len().max(read.len()))?,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: wire::scsi::encode::command(command, form).context("a command that fits")?,
        };
        self.cmd_sn = self.cmd_sn.next();
        self.send(&Request::Command(request), sent)?;
        let mut came = 0;
        loop {
            let (response, data) = self.receive()?;
            let (status, numbers) = match response {
                Response::DataIn(it) => {
                    let at = it.offset as usize;
                    let place = read.get_mut(at..at + data.len()).context("bytes nobody read")?;
                    place.copy_from_slice(&data);
                    came += data.len();
                    let Some(end) = it.status else { continue };
                    (end.status, it.numbers)
                }
                Response::Command(it) => {
                    if let Some(sense) = encode::sense_of_segment(&data).and_then(Sense::decode)
                        && command != &Command::TestUnitReady
                    {
                        bail!("{sense:?}");
                    }
                    (it.status, it.numbers)
                }
                Response::NopIn(nop) if nop.transfer_tag != Tag::NONE => {
                    let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
                    self.send(
                        &Request::NopOut(NopOut {
                            immediate: true,
                            lun: nop.lun,
                            task_tag: Tag::NONE,
                            transfer_tag: nop.transfer_tag,
                            cmd_sn,
                            exp_stat_sn,
                        }),
                        &[],
                    )?;
                    continue;
                }
                other => bail!("{other:?}"),
            };
            self.exp_stat_sn = numbers.stat_sn.next();
            ensure!(status != Status::GOOD || came == read.len(), "{came} bytes came");
            return Ok(status);
        }
    }
}

fn transfer(offset: u64, length: usize) -> anyhow::Result<Transfer> {
    let is_whole = offset.is_multiple_of(SECTOR_BYTES) && length <= COMMAND_BYTES_MAX;
    ensure!(is_whole && length.is_multiple_of(SECTOR_BYTES as usize), "{length} at {offset}");
    let blocks = u32::try_from(length as u64 / SECTOR_BYTES)?;
    let range = Range { lba: offset / SECTOR_BYTES, blocks };
    Ok(Transfer { range, fua: false, dpo: false })
}
