//! The answers to REPORT TARGET PORT GROUPS and REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.

/// Appends one target port group, active and optimized, with one port.
pub fn put_groups(group: u16, port: u16, extended: bool, out: &mut Vec<u8>) {
    const ACTIVE_OPTIMIZED: u8 = 0;
    const SUPPORTS_ACTIVE_OPTIMIZED: u8 = 1;
    let length: u32 = if extended { 16 } else { 12 };
    out.extend_from_slice(&length.to_be_bytes());
    if extended {
        out.extend_from_slice(&[0x10, 0, 0, 0]);
    }
    out.extend_from_slice(&[ACTIVE_OPTIMIZED, SUPPORTS_ACTIVE_OPTIMIZED]);
    out.extend_from_slice(&group.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 1, 0, 0]);
    out.extend_from_slice(&port.to_be_bytes());
}

/// Appends the task management functions: abort task, abort and clear task set, reset of a unit and
/// of the target.
pub fn put_functions(extended: bool, out: &mut Vec<u8>) {
    const ABORT_TASK: u8 = 0x80;
    const ABORT_TASK_SET: u8 = 0x40;
    const CLEAR_TASK_SET: u8 = 0x10;
    const RESET_UNIT: u8 = 0x08;
    const RESET_TARGET: u8 = 0x02;
    let functions = ABORT_TASK | ABORT_TASK_SET | CLEAR_TASK_SET | RESET_UNIT | RESET_TARGET;
    let start = out.len();
    out.extend_from_slice(&[functions, 0, 0, if extended { 12 } else { 0 }]);
    if extended {
        // No timeouts are told.
        out.resize(start + 16, 0);
    }
}
