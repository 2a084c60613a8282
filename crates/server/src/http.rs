//! The HTTP API: its routes, who may come in, and how handlers reach the engine.
//!
//! Handlers run on one thread; what touches the engine runs on threads that may wait.

mod about;
mod addresses;
mod answer;
mod archives;
mod ask;
mod changing;
mod context;
mod convert;
mod document;
mod file_diff;
mod files;
mod groups;
mod guard;
mod health;
mod history;
mod import;
mod jobs;
mod lacks;
mod logins;
mod made_targets;
mod marks;
mod model;
mod operations;
mod page;
mod pieces;
mod pool;
mod queries;
mod rename;
mod repairs;
mod restores;
mod rights;
mod router;
mod schedules;
mod selection;
mod serve;
mod shares;
mod started;
mod targets;
mod timeline;
mod together;
mod tokens;
mod trace;
mod trash;
mod upload;
mod verifications;
mod versions;
mod volumes;
mod watch;

pub(crate) use addresses::Addresses;
pub(crate) use ask::Patience;
pub(crate) use context::{Context, Parts};
pub use router::openapi_json;
pub(crate) use serve::HttpServer;
