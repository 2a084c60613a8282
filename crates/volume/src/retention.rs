//! Retention: versions, marks, schedules, groups, the trash, and how history leaves the past.

pub mod clock;
pub mod expiry;
pub mod explain;
pub mod filter;
pub mod grace;
pub mod group_schedule;
pub mod group_schedules;
pub mod groups;
pub mod hooks;
pub mod keep_rules;
pub mod marks;
pub mod needed;
pub mod open_files;
pub mod pins;
pub mod schedule;
pub mod schedules;
pub mod trash;
pub mod versions;
pub mod visibility;
