//! Any request and any response, for round trips.

use hindsight_wire as wire;
use proptest::prelude::{Just, Strategy, any};
use proptest::{option, prop_oneof};
use wire::iscsi::{
    AsyncEvent, AsyncMessage, CommandRequest, CommandResponse, DataIn, DataInStatus, DataOut, Isid,
    LoginRequest, LoginResponse, LoginStatus, LogoutReason, LogoutRequest, LogoutResponse,
    LogoutResult, NopIn, NopOut, Numbers, ReadyToTransfer, Reject, RejectReason, Request, Residual,
    Response, Serial, SnackRequest, Stage, Tag, TaskAttribute, TaskFunction, TaskRequest,
    TaskResponse, TaskResult, TextRequest, TextResponse,
};
use wire::scsi::{Lun, Status};

fn any_serial() -> impl Strategy<Value = Serial> {
    any::<u32>().prop_map(Serial)
}

fn any_tag() -> impl Strategy<Value = Tag> {
    prop_oneof![Just(Tag::NONE), any::<u32>().prop_map(Tag)]
}

fn any_lun() -> impl Strategy<Value = Lun> {
    any::<u64>().prop_map(Lun)
}

/// Immediate, LUN, tag, tag, CmdSN, ExpStatSN.
type Fields = (bool, Lun, Tag, Tag, Serial, Serial);

fn any_fields() -> impl Strategy<Value = Fields> {
    (any::<bool>(), any_lun(), any_tag(), any_tag(), any_serial(), any_serial())
}

fn any_stages() -> impl Strategy<Value = (bool, Stage, Option<Stage>)> {
    use Stage::{FullFeature, Operational, Security};
    let ends = prop_oneof![
        Just((Security, Operational)),
        Just((Security, FullFeature)),
        Just((Operational, FullFeature)),
    ];
    prop_oneof![
        ends.prop_map(|(stage, next)| (false, stage, Some(next))),
        (any::<bool>(), prop_oneof![Just(Security), Just(Operational)])
            .prop_map(|(continues, stage)| (continues, stage, None)),
    ]
}

/// Two numbers, a short one, a byte.
type Words = (u32, u32, u16, u8);
/// Flags, an attribute, a CDB.
type CommandFields = ([bool; 3], u8, [u8; 16]);
/// C, the stage and the next; ISID; versions.
type LoginFields = ((bool, Stage, Option<Stage>), [u8; 6], [u8; 2]);

pub fn any_request() -> impl Strategy<Value = Request> {
    let words = (any::<u32>(), any::<u32>(), any::<u16>(), any::<u8>());
    let command = (any::<[bool; 3]>(), 0..5_u8, any::<[u8; 16]>());
    let login = (any_stages(), any::<[u8; 6]>(), any::<[u8; 2]>());
    (0..8_u8, any_fields(), words, command, login).prop_map(
        |(which, fields, words, command, login)| match which {
            0..3 => tasks(which, fields, words, command),
            3 => Request::Login(login_request(fields, words, login)),
            _ => other_request(which, fields, words, command),
        },
    )
}

fn tasks(which: u8, fields: Fields, words: Words, command: CommandFields) -> Request {
    let (immediate, lun, task_tag, transfer_tag, cmd_sn, exp_stat_sn) = fields;
    let (first, second, _, byte) = words;
    let ([is_final, reads, writes], attribute, cdb) = command;
    match which {
        0 => {
            Request::NopOut(NopOut { immediate, lun, task_tag, transfer_tag, cmd_sn, exp_stat_sn })
        }
        1 => Request::Command(CommandRequest {
            immediate,
            is_final,
            reads,
            writes,
            lun,
            task_tag,
            cmd_sn,
            exp_stat_sn,
            cdb,
            attribute: TaskAttribute::from_number(attribute).expect("below 5"),
            expected_bytes: first,
        }),
        _ => Request::Task(TaskRequest {
            immediate,
            lun,
            task_tag,
            cmd_sn,
            exp_stat_sn,
            function: TaskFunction(byte & 0x7f),
            referenced_tag: transfer_tag,
            ref_cmd_sn: Serial(first),
            exp_data_sn: Serial(second),
        }),
    }
}

fn login_request(fields: Fields, words: Words, login: LoginFields) -> LoginRequest {
    let (_, _, task_tag, _, cmd_sn, exp_stat_sn) = fields;
    let (_, _, short, _) = words;
    let ((continues, stage, next), isid, [version_max, version_min]) = login;
    LoginRequest {
        continues,
        stage,
        next,
        version_max,
        version_min,
        task_tag,
        cmd_sn,
        exp_stat_sn,
        isid: Isid(isid),
        tsih: short,
        cid: !short,
    }
}

fn other_request(which: u8, fields: Fields, words: Words, command: CommandFields) -> Request {
    let (immediate, lun, task_tag, transfer_tag, cmd_sn, exp_stat_sn) = fields;
    let (first, second, short, byte) = words;
    let ([is_final, reads, _], ..) = command;
    match which {
        4 => Request::Text(TextRequest {
            immediate,
            is_final,
            lun,
            task_tag,
            transfer_tag,
            cmd_sn,
            exp_stat_sn,
            continues: !is_final && reads,
        }),
        5 => Request::DataOut(DataOut {
            is_final,
            lun,
            task_tag,
            transfer_tag,
            exp_stat_sn,
            data_sn: first,
            offset: second,
        }),
        6 => Request::Logout(LogoutRequest {
            immediate,
            task_tag,
            cmd_sn,
            exp_stat_sn,
            reason: LogoutReason(byte & 0x7f),
            cid: short,
        }),
        _ => Request::Snack(SnackRequest {
            lun,
            task_tag,
            transfer_tag,
            exp_stat_sn,
            kind: byte & 0xf,
            begin: first,
            run: second,
        }),
    }
}

fn any_residual() -> impl Strategy<Value = Residual> {
    prop_oneof![
        Just(Residual::None),
        any::<u32>().prop_map(Residual::Underflow),
        any::<u32>().prop_map(Residual::Overflow),
    ]
}

/// Numbers, short ones, bytes, flags.
type Mixed = ([u32; 3], [u16; 3], [u8; 2], [bool; 2]);

pub fn any_response() -> impl Strategy<Value = Response> {
    let end = option::of((any::<u8>(), any_residual()));
    let words = (any::<[u32; 3]>(), any::<[u16; 3]>(), any::<[u8; 2]>(), any::<[bool; 2]>());
    let login = (any_stages(), any::<[u8; 6]>());
    (0..10_u8, any_fields(), words, end, login).prop_map(|(which, fields, words, end, login)| {
        let (_, _, task_tag, _, stat_sn, exp_cmd_sn) = fields;
        let ([_, _, last], shorts, [byte, other], _) = words;
        let ((continues, stage, next), isid) = login;
        let numbers = Numbers { stat_sn, exp_cmd_sn, max_cmd_sn: Serial(last) };
        let end = end.map(|(status, residual)| DataInStatus { status: Status(status), residual });
        match which {
            3 => Response::Login(LoginResponse {
                continues,
                stage,
                next,
                version_max: byte,
                version_active: other,
                task_tag,
                numbers,
                isid: Isid(isid),
                tsih: shorts[0],
                status: LoginStatus(shorts[1]),
            }),
            0..6 => with_data(which, fields, words, numbers, end),
            _ => without_data(which, fields, words, numbers),
        }
    })
}

fn with_data(
    which: u8,
    fields: Fields,
    words: Mixed,
    numbers: Numbers,
    end: Option<DataInStatus>,
) -> Response {
    let (_, lun, task_tag, transfer_tag, ..) = fields;
    let ([first, second, _], _, [byte, other], [is_final, flag]) = words;
    match which {
        0 => Response::NopIn(NopIn { lun, task_tag, transfer_tag, numbers }),
        1 => Response::Command(CommandResponse {
            response: byte,
            status: Status(other),
            task_tag,
            numbers,
            exp_data_sn: first,
            residual: end.map_or(Residual::None, |end| end.residual),
        }),
        2 => Response::Task(TaskResponse { result: TaskResult(byte), task_tag, numbers }),
        4 => Response::Text(TextResponse {
            is_final,
            continues: !is_final && flag,
            lun,
            task_tag,
            transfer_tag,
            numbers,
        }),
        _ => Response::DataIn(DataIn {
            is_final,
            acknowledge: flag,
            status: end,
            lun,
            task_tag,
            transfer_tag,
            numbers,
            data_sn: first,
            offset: second,
        }),
    }
}

fn without_data(which: u8, fields: Fields, words: Mixed, numbers: Numbers) -> Response {
    let (_, lun, task_tag, transfer_tag, ..) = fields;
    let ([first, second, third], shorts, [byte, other], _) = words;
    match which {
        6 => Response::Logout(LogoutResponse {
            result: LogoutResult(byte),
            task_tag,
            numbers,
            time_to_wait_s: shorts[0],
            time_to_retain_s: shorts[1],
        }),
        7 => Response::ReadyToTransfer(ReadyToTransfer {
            lun,
            task_tag,
            transfer_tag,
            numbers,
            r2t_sn: first,
            offset: second,
            wanted_bytes: third,
        }),
        8 => Response::Async(AsyncMessage {
            lun,
            numbers,
            event: AsyncEvent(byte),
            vendor_code: other,
            parameters: shorts,
        }),
        _ => Response::Reject(Reject { reason: RejectReason(byte), numbers, data_sn: first }),
    }
}
