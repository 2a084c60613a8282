//! The `hindsight` command from outside: its help, its exit codes, its life against a server.

mod certificates;
mod changes;
mod completing;
mod contract;
mod doctor;
mod fixture;
mod fuzzed_api;
mod help;
mod images;
mod life;
mod offline;
mod recording;
mod rename;
mod schedules;
mod scrub;
mod serving;
mod share_archives;
mod share_files;
mod share_operations;
mod shares;
mod targets;
mod tls;
mod tokens;
mod traces;
mod trash;
mod watching;
