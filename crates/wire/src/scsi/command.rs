//! Decoded commands.

use super::reservations::{InAction, OutAction, ReservationType};

/// A range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First block.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

/// A range that is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where.
    pub range: Range,
    /// FUA: on the medium before the answer.
    pub fua: bool,
    /// DPO: not worth keeping in a cache.
    pub dpo: bool,
}

/// BYTCHK: which data a verification compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteCheck {
    /// None: the blocks only have to be readable.
    Medium,
    /// As many blocks of the initiator.
    Blocks,
    /// One block of the initiator, against each.
    OneBlock,
}

/// PC: which values of mode pages are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageControl {
    /// Those in force.
    Current,
    /// A mask of what MODE SELECT may change.
    Changeable,
    /// Those after a reset.
    Default,
    /// Those that were saved: not supported.
    Saved,
}

/// MODE SENSE, of either length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSense {
    /// MODE SENSE(10), whose header is longer.
    pub is_ten: bool,
    /// The page; 3F is all.
    pub page: u8,
    /// The subpage; FF is all.
    pub subpage: u8,
    /// Which values.
    pub control: PageControl,
    /// DBD: no block descriptor.
    pub no_descriptor: bool,
    /// LLBAA: the block descriptor may be the long one.
    pub long_descriptor: bool,
    /// Bytes the initiator takes.
    pub allocation_bytes: u32,
}

/// REPORT SUPPORTED OPERATION CODES: about which commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpcodeQuestion {
    /// All.
    All,
    /// One without service actions.
    Opcode(u8),
    /// One with a service action.
    ServiceAction(u8, u16),
    /// One with a service action, or one without them.
    Either(u8, u16),
}

/// A decoded command. Lengths are those of the CDB, not yet compared with anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// TEST UNIT READY.
    TestUnitReady,
    /// REQUEST SENSE.
    RequestSense {
        /// In descriptor format.
        descriptor: bool,
        /// Bytes the initiator takes.
        allocation_bytes: u32,
    },
    /// INQUIRY.
    Inquiry {
        /// The page of vital product data; none is the standard data.
        page: Option<u8>,
        /// Bytes the initiator takes.
        allocation_bytes: u32,
    },
    /// READ CAPACITY(10).
    ReadCapacity10,
    /// READ CAPACITY(16).
    ReadCapacity16 {
        /// Bytes the initiator takes.
        allocation_bytes: u32,
    },
    /// READ(6, 10, 12, 16).
    Read(Transfer),
    /// WRITE(6, 10, 12, 16).
    Write(Transfer),
    /// WRITE AND VERIFY(10, 12, 16).
    WriteAndVerify {
        /// Where.
        range: Range,
        /// DPO.
        dpo: bool,
        /// `Medium` or `Blocks`.
        check: ByteCheck,
    },
    /// VERIFY(10, 12, 16).
    Verify {
        /// Where.
        range: Range,
        /// DPO.
        dpo: bool,
        /// Against which data.
        check: ByteCheck,
    },
    /// PRE-FETCH(10, 16).
    Prefetch {
        /// Where; no blocks means to the end.
        range: Range,
        /// Answered before it is done.
        immediate: bool,
    },
    /// SYNCHRONIZE CACHE(10, 16).
    SynchronizeCache {
        /// Where; no blocks means to the end.
        range: Range,
        /// Answered before it is done.
        immediate: bool,
    },
    /// UNMAP; the list is read by [`unmap`](super::unmap).
    Unmap {
        /// Bytes of the parameter list.
        list_bytes: u32,
    },
    /// WRITE SAME(10, 16).
    WriteSame {
        /// Where; no blocks means to the end, if that is allowed.
        range: Range,
        /// UNMAP: the blocks may be deallocated, if they read as zeros.
        unmap: bool,
        /// NDOB: no block is sent; it is zeros.
        no_data: bool,
    },
    /// COMPARE AND WRITE: the data is that to compare, then that to write.
    CompareAndWrite(Transfer),
    /// WRITE ATOMIC(16).
    WriteAtomic {
        /// Where.
        transfer: Transfer,
        /// Blocks of each atomic part; 0 for one part.
        boundary_blocks: u16,
    },
    /// ORWRITE(16).
    OrWrite(Transfer),
    /// GET LBA STATUS.
    GetLbaStatus {
        /// First block.
        lba: u64,
        /// Bytes the initiator takes.
        allocation_bytes: u32,
    },
    /// LOG SENSE.
    LogSense {
        /// Page and subpage.
        page: (u8, u8),
        /// The first parameter that is wanted.
        first: u16,
        /// Bytes the initiator takes.
        allocation_bytes: u32,
    },
    /// MODE SENSE(6, 10).
    ModeSense(ModeSense),
    /// MODE SELECT(6, 10); the list is read by [`mode`](super::mode).
    ModeSelect {
        /// MODE SELECT(10), whose header is longer.
        is_ten: bool,
        /// Bytes of the parameter list.
        list_bytes: u32,
    },
    /// START STOP UNIT.
    StartStopUnit {
        /// START.
        start: bool,
        /// LOEJ: load or eject; there is no such medium here.
        load_or_eject: bool,
        /// POWER CONDITION; 0 is start or stop.
        power_condition: u8,
        /// Answered before it is done.
        immediate: bool,
    },
    /// RESERVE(6, 10) of the whole unit.
    Reserve,
    /// RELEASE(6, 10) of the whole unit.
    Release,
    /// PERSISTENT RESERVE IN.
    PersistentReserveIn {
        /// Which question.
        action: InAction,
        /// Bytes the initiator takes.
        allocation_bytes: u32,
    },
    /// PERSISTENT RESERVE OUT; the list is read by [`reservations`](super::reservations).
    PersistentReserveOut {
        /// Which change.
        action: OutAction,
        /// Type, if scope and type are ones that there are; of meaning for some actions only.
        kind: Option<ReservationType>,
        /// Bytes of the parameter list.
        list_bytes: u32,
    },
    /// REPORT LUNS.
    ReportLuns {
        /// SELECT REPORT: 0 to 2.
        select: u8,
        /// Bytes the initiator takes.
        allocation_bytes: u32,
    },
    /// REPORT TARGET PORT GROUPS.
    ReportTargetPortGroups {
        /// With the extended header.
        extended: bool,
        /// Bytes the initiator takes.
        allocation_bytes: u32,
    },
    /// REPORT SUPPORTED OPERATION CODES.
    ReportSupportedOpcodes {
        /// About which.
        question: OpcodeQuestion,
        /// RCTD: with timeouts.
        timeouts: bool,
        /// Bytes the initiator takes.
        allocation_bytes: u32,
    },
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
    ReportSupportedFunctions {
        /// REPD: the longer answer.
        extended: bool,
        /// Bytes the initiator takes.
        allocation_bytes: u32,
    },
    /// SEND DIAGNOSTIC: the default self-test, or nothing.
    SendDiagnostic {
        /// A self-test is wanted.
        self_test: bool,
    },
}

/// The bytes that a CDB asks to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// None.
    None,
    /// So many to the initiator.
    In(u64),
    /// To the initiator, as many as there are and at most this.
    InAtMost(u32),
    /// So many from the initiator.
    Out(u64),
}

impl Command {
    /// The blocks that the command names.
    #[must_use]
    pub const fn range(&self) -> Option<Range> {
        match *self {
            Command::Read(transfer)
            | Command::Write(transfer)
            | Command::CompareAndWrite(transfer)
            | Command::OrWrite(transfer)
            | Command::WriteAtomic { transfer, .. } => Some(transfer.range),
            Command::WriteAndVerify { range, .. }
            | Command::Verify { range, .. }
            | Command::Prefetch { range, .. }
            | Command::SynchronizeCache { range, .. }
            | Command::WriteSame { range, .. } => Some(range),
            Command::GetLbaStatus { lba, .. } => Some(Range { lba, blocks: 0 }),
            _ => None,
        }
    }

    /// Whether the command changes what is stored.
    #[must_use]
    pub const fn writes(&self) -> bool {
        matches!(
            self,
            Command::Write(_)
                | Command::WriteAndVerify { .. }
                | Command::Unmap { .. }
                | Command::WriteSame { .. }
                | Command::CompareAndWrite(_)
                | Command::WriteAtomic { .. }
                | Command::OrWrite(_)
        )
    }

    /// The bytes that it asks to move, with blocks of `block_bytes`.
    #[must_use]
    pub fn movement(&self, block_bytes: u32) -> Movement {
        let bytes = |blocks: u32| u64::from(blocks) * u64::from(block_bytes);
        match *self {
            Command::TestUnitReady
            | Command::Prefetch { .. }
            | Command::SynchronizeCache { .. }
            | Command::StartStopUnit { .. }
            | Command::Reserve
            | Command::Release
            | Command::SendDiagnostic { .. } => Movement::None,
            Command::Read(transfer) => Movement::In(bytes(transfer.range.blocks)),
            Command::Write(transfer)
            | Command::OrWrite(transfer)
            | Command::WriteAtomic { transfer, .. } => Movement::Out(bytes(transfer.range.blocks)),
            Command::CompareAndWrite(transfer) => Movement::Out(2 * bytes(transfer.range.blocks)),
            Command::WriteAndVerify { range, .. } => Movement::Out(bytes(range.blocks)),
            Command::Verify { range, check, .. } => match check {
                ByteCheck::Medium => Movement::None,
                ByteCheck::Blocks => Movement::Out(bytes(range.blocks)),
                ByteCheck::OneBlock => Movement::Out(bytes(range.blocks.min(1))),
            },
            Command::WriteSame { no_data: true, .. } => Movement::None,
            Command::WriteSame { .. } => Movement::Out(bytes(1)),
            Command::Unmap { list_bytes }
            | Command::ModeSelect { list_bytes, .. }
            | Command::PersistentReserveOut { list_bytes, .. } => Movement::Out(list_bytes.into()),
            Command::ReadCapacity10 => Movement::InAtMost(8),
            Command::ModeSense(ModeSense { allocation_bytes, .. })
            | Command::RequestSense { allocation_bytes, .. }
            | Command::Inquiry { allocation_bytes, .. }
            | Command::ReadCapacity16 { allocation_bytes }
            | Command::GetLbaStatus { allocation_bytes, .. }
            | Command::LogSense { allocation_bytes, .. }
            | Command::PersistentReserveIn { allocation_bytes, .. }
            | Command::ReportLuns { allocation_bytes, .. }
            | Command::ReportTargetPortGroups { allocation_bytes, .. }
            | Command::ReportSupportedOpcodes { allocation_bytes, .. }
            | Command::ReportSupportedFunctions { allocation_bytes, .. } => {
                Movement::InAtMost(allocation_bytes)
            }
        }
    }
}
