//! `hindsight page`: the way into the web page for somebody who may less than DIR/token.

use anyhow::Context;
use api::{CreateToken, ExitCode, Pattern, RoleName, ServerAddress, SpanInput};
use serde_json::json;
use terminal::arguments::span;
use units::{NamePattern, Role, Span};

use crate::failure::Failure;
use crate::session::{Session, say};
use crate::token::{pattern, role};

/// The beginning of the names of tokens that are made here.
const NAME: &str = "page-";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// What the page may, as of `token create`.
    #[arg(long, value_name = "ROLE", default_value = "viewer", value_parser = role)]
    role: Role,
    /// Volumes that it sees, such as 'pg*'; it may be given several times [default: all].
    #[arg(long = "volume", value_name = "PATTERN", value_parser = pattern)]
    volumes: Vec<NamePattern>,
    /// For how long.
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
    // Those of earlier calls that let nobody in any more.
    for old in client.tokens()?.iter().filter(|token| token.expired) {
        if old.name.starts_with(NAME) {
            client.revoke_token(&old.name)?;
        }
    }
    let now = server.time.to_string();
    let digits: String = now.chars().filter(char::is_ascii_digit).collect();
    let made = client.create_token(&CreateToken {
        name: format!("{NAME}{digits}"),
        role: RoleName(args.role),
        volumes: args.volumes.into_iter().map(Pattern).collect(),
        expires: Some(SpanInput(args.how_long)),
        chap: false,
    })?;
    let secret = made.secret.context("the server told no secret")?;
    // A fragment is sent to no server and no proxy; the page takes it out of the address at once.
    let url = format!("{}#token={secret}", page);
    let until = made.expires.map(|time| time.to_string()).unwrap_or_default();
    say(&format!("{} until {until}; whoever has the address may that: {}", made.role, made.name));
    session.answer(&json!({"url": url, "token": made.name, "expires": until}), |_| url.clone())?;
    Ok(ExitCode::Done)
}
