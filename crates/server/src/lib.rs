//! The server: HTTP and NBD sessions over one pool, and the thread that does its background work.
//!
//! `settings` become a `Config`; `pool_files` opens or makes the pool; `listen` binds sockets;
//! `http` and `nbd` serve them, the latter over `serving`, which knows no protocol; `attach` knows
//! which clients hold which volume (entered by sessions, asked by HTTP); `server` starts and stops
//! all of it in order; `serve` is the command.

mod admission;
mod at_once;
mod attach;
mod background;
mod buffers;
mod error;
mod exposure;
mod fill;
mod hooked;
mod hooks;
mod http;
mod intercept;
pub mod iscsi;
mod listen;
mod listening;
mod logs;
mod lone_file;
mod member_changes;
mod member_watch;
mod meters;
mod metrics;
pub mod nbd;
pub mod nfs;
mod no_space;
mod opening_log;
mod pool_dir;
mod pool_files;
mod process_metrics;
mod prometheus;
mod proving;
mod relay_settings;
mod reload;
mod scratch;
mod serve;
mod server;
pub mod serving;
mod settings;
mod stack_files;
mod taps;
pub mod tls;
mod token;
mod told;
mod watching;
mod who;
mod worker;
mod write_memory;

pub use attach::{Attachment, Attachments, Part, VolumeId};
pub use buffers::Buffers;
pub use error::{StartError, problem_kind};
pub use hooks::Hook;
pub use http::openapi_json;
pub use listening::{Listening, SocketAccess};
pub use logs::{start_log, watch_panics};
pub use meters::Meters;
pub use no_space::NoSpace;
pub use pool_files::{grow, pool_path, rebuild};
pub use relay_settings::{Intercept, InterceptSettings};
pub use serve::serve;
pub use server::Server;
pub use settings::{
    AccessSettings, CONFIG_FILE_DEFAULT, Config, HookSettings, HttpSettings, IscsiSettings,
    LogSettings, NbdSettings, NfsSettings, Settings,
};
pub use stack_files::{create_stack, member_paths};
pub use taps::Taps;
pub use who::{AccessConfig, Certificates};
pub use write_memory::{memory_bytes, write_memory_default};
