//! `hindsight page`: the way into the web page for somebody who may less than DIR/token.

use api::{CreateCode, ExitCode, Pattern, RoleName, ServerAddress, SpanInput};
use serde_json::json;
use terminal::arguments::span;
use units::{NamePattern, Role, Span};

use crate::failure::Failure;
use crate::session::{Session, say};
use crate::token::{pattern, role};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the page may, as of `token create`.
    #[arg(long, value_name = "ROLE", default_value = "viewer", value_parser = role)]
    role: Role,
    /// Volumes that it sees, such as 'pg*'; it may be given several times [default: all].
    #[arg(long = "volume", value_name = "PATTERN", value_parser = pattern)]
    volumes: Vec<NamePattern>,
    /// How long the page may that, from when the address was opened.
    #[arg(long = "for", value_name = "SPAN", default_value = "12h", value_parser = span)]
    how_long: Span,
    /// Where the page is, for the browser [default: where the server is asked over TCP, or says
    /// that it is].
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

pub fn run(session: &Session, args: Args) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    let server = client.server()?;
    let own = match client.address() {
        address @ ServerAddress::Http { .. } => Some(format!("{address}/")),
        ServerAddress::Unix(..) => server.page,
    };
    let page = args.url.or(own).ok_or_else(|| {
        Failure::new("the server tells no address of its page").with_hint(
            "it serves HTTP over TCP with --http 127.0.0.1:9820; by another name that \
                        its certificate has, or behind a proxy, give --url",
        )
    })?;
    let made = client.create_code(&CreateCode {
        role: RoleName(args.role),
        volumes: args.volumes.into_iter().map(Pattern).collect(),
        expires: Some(SpanInput(args.how_long)),
    })?;
    // A fragment is sent to no server and no proxy; the page takes it out of the address at once.
    let url = format!("{page}#enter={}", made.code);
    let until = made.expires.to_string();
    say(&format!("good once, until {until}; whoever opens it is {} there", args.role));
    session.answer(&json!({"url": url, "expires": until}), |_| url.clone())?;
    Ok(ExitCode::Done)
}
