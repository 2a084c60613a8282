//! The `hindsight-csi` command: a driver of the Container Storage Interface (CSI), by which
//! Kubernetes and others make volumes of Hindsight, attach them to machines, and go back in time.
//!
//! One program is controller and node in one. Without a server to ask it is a node alone, and needs
//! no token.

use std::path::PathBuf;
use std::process::ExitCode as Status;
use std::sync::Arc;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser};
use terminal::failure::{self, Failure};
use terminal::session::{Session, TlsSource, TokenSource, say};

mod attach;
mod capability;
mod controller;
mod grpc;
mod identity;
mod names;
mod node;
mod programs;
mod snapshots;
mod turns;

use attach::Attach;
use controller::Controller;
use csi_messages::proto;
use node::Node;

/// How long an answer of the server may take: one to a snapshot waits for its hook.
const ANSWER: std::time::Duration = std::time::Duration::from_secs(300);

/// A driver of the Container Storage Interface.
#[derive(Debug, Parser)]
#[command(name = "hindsight-csi", version, max_term_width = 100)]
struct Args {
    /// Where calls are served: unix:///PATH.
    #[arg(
        long,
        env = "CSI_ENDPOINT",
        default_value = "unix:///csi/csi.sock",
        value_name = "WHERE"
    )]
    endpoint: String,
    /// The server that is asked for volumes; without one this is the driver of a node alone.
    #[arg(long, env = "HINDSIGHT_SERVER", value_name = "ADDRESS")]
    server: Option<String>,
    /// A file with the token that is shown to it.
    #[arg(long, env = "HINDSIGHT_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificates of the authorities that are believed, for https://.
    #[arg(long, env = "HINDSIGHT_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// How volumes are attached to this node.
    #[arg(long, env = "HINDSIGHT_ATTACH", value_enum, default_value = "iscsi")]
    attach: Attach,
    /// Where this node reaches the server for data: HOST:PORT of iSCSI, or of NBD.
    #[arg(
        long,
        env = "HINDSIGHT_DATA",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:3260"
    )]
    data: String,
    /// The name of this node, that of an initiator [default: as /etc/iscsi/initiatorname.iscsi has
    /// it].
    #[arg(long, env = "HINDSIGHT_NODE", value_name = "NAME")]
    node: Option<String>,
    /// Where is kept what is attached to this node.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/hindsight-csi")]
    state: PathBuf,
}

fn main() -> Status {
    let matches = match Args::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            let _ = error.print();
            return Status::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let done = Args::from_arg_matches(&matches).map_err(Into::into).and_then(|args| run(&args));
    match done {
        Ok(()) => Status::SUCCESS,
        Err(error) => Status::from(failure::report(&error, false) as u8),
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let Some(socket) = args.endpoint.strip_prefix("unix:") else {
        return Err(
            Failure::usage(format!("{}: only unix:///PATH is served", args.endpoint)).into()
        );
    };
    let socket = PathBuf::from(format!("/{}", socket.trim_start_matches('/')));
    let controller = match &args.server {
        None => None,
        Some(server) => {
            let token = args.token_file.clone().map(TokenSource::File);
            let tls = TlsSource { ca: args.ca.clone(), ..TlsSource::default() };
            let session = Session::new(server.clone(), token, false, true).with_tls(tls);
            Some(Arc::new(Controller::new(session.client()?.with_deadline(ANSWER))))
        }
    };
    let node = Node::new(args.attach, &args.data, args.node.clone(), &args.state);
    let node =
        Arc::new(node.with_context(|| format!("cannot keep state in {}", args.state.display()))?);
    let mut paths = identity::calls(controller.clone(), args.attach).paths();
    if let Some(controller) = &controller {
        paths = paths.merge(controller::calls(controller).paths());
    }
    paths = paths.merge(node::calls(&node).paths());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let end = async move {
            tokio::select! {
                _ = ended.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        };
        say(&format!("serving at {}", args.endpoint));
        grpc::serve(&socket, paths, end).await
    })
}
