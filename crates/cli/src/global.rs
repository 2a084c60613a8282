//! Options of every command: where the server is, what is shown to it, and how to answer.

use std::path::PathBuf;

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::session::{Session, TlsSource, TokenSource};

/// Where the server is, unless somebody says otherwise.
pub const SERVER: &str = "unix:/run/hindsight/api.sock";

// What a comment of rustdoc says here would stand in the help of the program.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct Args {
    /// Where the server is: unix:/path, or http:// or https://host:port, also as `serve` prints it,
    /// with its token.
    #[arg(long, global = true, value_name = "ADDRESS", env = "HINDSIGHT_SERVER")]
    #[arg(default_value = SERVER)]
    server: String,
    /// Token to show the server, which asks for one over TCP. Others see command lines: better in
    /// the variable, or a file.
    #[arg(long, global = true, value_name = "TOKEN", env = "HINDSIGHT_TOKEN")]
    token: Option<String>,
    /// File with that token: of `token create --output`, or DIR/token of the server's pool.
    #[arg(long, global = true, value_name = "FILE", env = "HINDSIGHT_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Certificates of the authorities that a server at https:// is known by, PEM.
    #[arg(long, global = true, value_name = "FILE", env = "HINDSIGHT_CA")]
    ca: Option<PathBuf>,
    /// Certificate to show a server at https://, in the place of a token, PEM.
    #[arg(long, global = true, value_name = "FILE", env = "HINDSIGHT_CERT")]
    cert: Option<PathBuf>,
    /// Private key of that certificate, PEM, unless it is in the same file.
    #[arg(long, global = true, value_name = "FILE", env = "HINDSIGHT_KEY")]
    key: Option<PathBuf>,
    /// Answer in JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// Do what cannot be undone without asking; only terminals are asked.
    #[arg(long, global = true)]
    yes: bool,
}

impl Args {
    /// A file that the command line names counts, and not the token of the environment.
    pub fn settle(&mut self, read: &ArgMatches) {
        let is_given = |id: &str| read.value_source(id) == Some(ValueSource::CommandLine);
        if is_given("token_file") && !is_given("token") {
            self.token = None;
        }
    }

    /// The session that they ask for.
    pub fn session(self) -> Session {
        let token = self.token.map(TokenSource::Text);
        let token = token.or(self.token_file.map(TokenSource::File));
        let tls = TlsSource { ca: self.ca, cert: self.cert, key: self.key };
        Session::new(self.server, token, self.json, self.yes).with_tls(tls)
    }
}
