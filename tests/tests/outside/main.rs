//! Tests from outside, one program: each module is one kind of client.

mod back_pressure;
mod checker_client;
mod contract;
mod database_hook;
mod databases;
mod docs;
mod file_systems;
mod files;
mod full_file_system;
mod hooks;
mod intercept;
mod iscsi;
mod iscsi_units;
mod members;
mod nfs;
mod one_file;
mod operation;
mod package;
mod page;
mod peers;
mod quick_check;
mod reload;
mod rot;
mod settling;
mod stage;
mod unit;
