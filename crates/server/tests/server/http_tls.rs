//! HTTP under TLS: who is let in by which certificate, and who is not, by curl.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use api::ListQuery;
use hindsight_server::{Config, Server, Settings, StartError};
use units::Role;

use crate::certificates::{authority, certificates, sign};
use crate::fixture::{Fixture, new_volume, settings};
use crate::rights::token;

/// Settings with the server's certificate in `dir`, for clients with the authority's.
fn tls(settings: &mut Settings, dir: &Path, rule: &str) {
    settings.nbd.listen = vec!["none".to_owned()];
    settings.http.tls_cert = Some(dir.join("server-cert.pem"));
    settings.http.tls_key = Some(dir.join("server-key.pem"));
    settings.http.tls_client_ca = Some(dir.join("ca-cert.pem"));
    settings.access.certificates = Some(rule.to_owned());
}

fn fixture(clients: &[&str], rule: &str) -> Fixture {
    let fixture = Fixture::with(|settings, dir| {
        certificates(dir, clients);
        tls(settings, dir, rule);
    });
    for name in ["pg", "zulu"] {
        fixture.client.create_volume(&new_volume(name, 1 << 20)).expect("made");
    }
    fixture
}

/// What a request by curl came to: status and body, or what curl says.
type Asked = Result<(u16, String), String>;

/// Asks with more arguments, of a server that an authority in `dir` has signed.
fn curl(fixture: &Fixture, dir: &Path, path: &str, arguments: &[&str]) -> Asked {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20", "-w", "\n%{http_code}", "--cacert"]);
    command.arg(dir.join("ca-cert.pem")).args(arguments);
    command.arg(format!("https://{}{path}", fixture.http_address().0));
    let output = command.output().expect("curl: scripts/install-packages test");
    if !output.status.success() {
        return Err(String::from_utf8(output.stderr).expect("UTF-8"));
    }
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let (body, status) = text.rsplit_once('\n').expect("a status");
    Ok((status.parse().expect("a number"), body.to_owned()))
}

/// Asks with the certificate of a client, and more arguments.
fn shown(fixture: &Fixture, client: &str, path: &str, arguments: &[&str]) -> Asked {
    let dir = fixture.dir.path();
    let [cert, key] =
        ["cert", "key"].map(|part| dir.join(client).join(format!("client-{part}.pem")));
    let own = ["--cert", cert.to_str().expect("plain"), "--key", key.to_str().expect("plain")];
    curl(fixture, dir, path, &[&own[..], arguments].concat())
}

fn status(asked: Asked) -> u16 {
    asked.expect("an answer").0
}

const VOLUMES: &str = "/api/v1/volumes";

#[test]
fn a_certificate_may_what_the_token_of_its_name_may_unless_a_token_is_shown() {
    let fixture = fixture(&["keeper", "maker", "nobody"], "named");
    fixture.client.create_token(&token("maker", Role::Admin, &["pg*"])).expect("made");
    fixture.client.create_token(&token("keeper", Role::Keeper, &["pg*"])).expect("made");
    let header = format!("Authorization: Bearer {}", fixture.http_address().1);
    let pools = ["-H", &header];
    let dir = fixture.dir.path();
    let (code, body) = shown(&fixture, "keeper", VOLUMES, &[]).expect("an answer");
    assert!(code == 200 && body.contains("\"pg\"") && !body.contains("zulu"), "{body}");
    let versions = "/api/v1/volumes/pg/versions";
    let json = ["-H", "Content-Type: application/json", "-d", "{}"];
    assert_eq!(status(shown(&fixture, "keeper", versions, &json)), 201);
    assert_eq!(status(shown(&fixture, "keeper", "/api/v1/tokens", &[])), 403);
    let json = [&json[..3], &["{\"name\":\"pg-2\",\"size\":4096}"]].concat();
    assert_eq!(status(shown(&fixture, "maker", VOLUMES, &json)), 201);
    assert_eq!(status(shown(&fixture, "keeper", VOLUMES, &json)), 403);
    let records = fixture.client.audit(&ListQuery::default()).expect("audit").entries;
    let made = records.iter().find(|record| record.volume == "pg-2").expect("written");
    assert_eq!(made.who.as_deref(), Some("cert:maker"));
    assert!(made.from.as_deref().is_some_and(|from| from.starts_with("127.0.0.1:")));
    assert!(fixture.client.token("keeper").expect("there").last_used.is_some());

    // The authority knows it, and no token has its name.
    let (code, body) = shown(&fixture, "nobody", VOLUMES, &[]).expect("an answer");
    assert!(code == 401 && body.contains("nobody"), "{body}");
    assert_eq!(status(shown(&fixture, "nobody", "/healthz", &[])), 200);
    // A token that is shown is what counts, also a wrong one.
    assert_eq!(status(shown(&fixture, "nobody", VOLUMES, &pools)), 200);
    for wrong in ["Bearer wrong", "Bearer ", "hs1_x", "Token hs1_z", "Bearer\ths1_z"] {
        let wrong = ["-H", &format!("Authorization: {wrong}")];
        assert_eq!(status(shown(&fixture, "keeper", VOLUMES, &wrong)), 401, "{wrong:?}");
    }
    assert_eq!(status(shown(&fixture, "keeper", &format!("{VOLUMES}?token=wrong"), &[])), 401);
    assert_eq!(status(curl(&fixture, dir, VOLUMES, &pools)), 200);
    assert_eq!(status(curl(&fixture, dir, VOLUMES, &[])), 401);

    // Pages of this site are those under TLS.
    let from = |origin: &str| {
        let header = format!("Origin: {origin}://{}", fixture.http_address().0);
        status(shown(&fixture, "keeper", VOLUMES, &["-H", &header]))
    };
    assert_eq!((from("https"), from("http")), (200, 403));
    let named = ["-H", "Host: storage.example:9820"];
    assert_eq!(status(shown(&fixture, "keeper", VOLUMES, &named)), 200);

    fixture.client.revoke_token("keeper").expect("revoked");
    assert_eq!(status(shown(&fixture, "keeper", VOLUMES, &[])), 401);
}

#[test]
fn another_authority_comes_with_another_rule_or_not_before_the_next_start() {
    let mut fixture = Fixture::with(|settings, dir| {
        certificates(dir, &["anyone"]);
        tls(settings, dir, "any");
        settings.http.tls_client_ca = None;
    });
    fixture.client.create_volume(&new_volume("pg", 1 << 20)).expect("made");
    let dir = fixture.dir.path().to_owned();
    let config = |rule: &str| {
        let mut settings = settings(&dir.join("pool"));
        tls(&mut settings, &dir, rule);
        Config::from_settings(settings).expect("config")
    };
    let mut reload = |rule: &str| {
        let server = fixture.server.as_mut().expect("running");
        server.reload(&config(rule)).expect("loaded")
    };
    // With the rule that says whom the authority lets in, it waits.
    assert!(reload("named").iter().any(|setting| setting.contains("tls_client_ca")));
    let asked = shown(&fixture, "anyone", VOLUMES, &[]);
    assert_eq!(status(asked), 401, "nobody's certificate is asked for");
}

#[test]
fn a_certificate_on_an_open_connection_ends_with_what_let_it_in() {
    let mut fixture = fixture(&["anyone"], "any");
    let dir = fixture.dir.path().to_owned();
    let address = fixture.http_address().0;
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-connect", address, "-CAfile"]);
    client.arg(dir.join("ca-cert.pem")).arg("-cert").arg(dir.join("anyone/client-cert.pem"));
    client.arg("-key").arg(dir.join("anyone/client-key.pem"));
    let client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = client.spawn().expect("openssl: scripts/install-packages test");
    let (mut to, from) = (client.stdin.take().expect("piped"), client.stdout.take());
    let mut from = BufReader::new(from.expect("piped"));
    let mut ask = || {
        to.write_all(b"GET /api/v1/server HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            from.read_line(&mut line).expect("a line");
            match line.trim() {
                "" => break,
                line => head.push(line.to_lowercase()),
            }
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.expect("a length").parse().expect("a number")];
        from.read_exact(&mut body).expect("a body");
        head
    };
    assert!(ask()[0].contains("200"));
    let mut settings = settings(&dir.join("pool"));
    tls(&mut settings, &dir, "any");
    let config = Config::from_settings(settings).expect("config");
    fixture.server.as_mut().expect("running").reload(&config).expect("loaded");
    let head = ask();
    assert!(head[0].contains("401") && head.contains(&"connection: close".to_owned()), "{head:?}");
    client.kill().expect("ended");
    client.wait().expect("waited for");
}

#[test]
fn without_a_rule_of_names_a_certificate_of_the_authority_may_all_and_no_other_gets_in() {
    let fixture = fixture(&["anyone"], "any");
    let dir = fixture.dir.path();
    let json = ["-H", "Content-Type: application/json", "-d", "{\"name\":\"new\",\"size\":4096}"];
    assert_eq!(status(shown(&fixture, "anyone", VOLUMES, &json)), 201);
    let records = fixture.client.audit(&ListQuery::default()).expect("audit").entries;
    assert_eq!(records.last().expect("one").who.as_deref(), Some("cert:anyone"));
    assert_eq!(status(curl(&fixture, dir, VOLUMES, &[])), 401, "a certificate is asked for");

    sign(dir, "2020-01-01", "anyone", ("late", "client"));
    let said = shown(&fixture, "late", VOLUMES, &[]).expect_err("refused");
    assert!(said.contains("expired"), "{said}");
    let others = tempfile::tempdir().expect("directory");
    certificates(others.path(), &["anyone"]);
    fs::rename(others.path().join("anyone"), dir.join("foreign")).expect("moved");
    let said = shown(&fixture, "foreign", VOLUMES, &[]).expect_err("refused");
    assert!(said.contains("alert"), "{said}");
    // It knows the server by another authority.
    assert!(curl(&fixture, others.path(), "/healthz", &[]).is_err());
}

#[test]
fn who_speaks_without_tls_is_told_and_who_is_silent_keeps_no_place() {
    const SILENT: usize = 300;
    let dir = tempfile::tempdir().expect("directory");
    certificates(dir.path(), &[]);
    let mut settings = settings(&dir.path().join("pool"));
    tls(&mut settings, dir.path(), "named");
    let mut config = Config::from_settings(settings).expect("config");
    config.http_patience = Duration::from_secs(1);
    let fixture = Fixture::of(Server::start(&config).expect("start"), dir);
    let address = fixture.http_address().0;

    let (code, body) = fixture.raw("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(code == 400 && body.contains("https://"), "{code} {body}");
    // The beginning of a handshake, and what is none.
    for bytes in [&[22, 3, 1, 2, 0, 1][..], &[22], &[22, 0, 0, 0, 0, 0, 0], &[0; 300], b""] {
        let mut stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        stream.write_all(bytes).expect("send");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an end");
        let is_answer = answer.is_empty() || answer[0] == 21 || answer.starts_with(b"HTTP/1.1 400");
        assert!(is_answer, "{bytes:?}: {answer:?}");
    }
    let silent: Vec<TcpStream> =
        (0..SILENT).map(|_| TcpStream::connect(address).expect("connect")).collect();
    fixture.client.volumes().expect("the unix socket is served, and plain");
    assert_eq!(status(curl(&fixture, fixture.dir.path(), "/healthz", &[])), 200);
    drop(silent);
}

fn start(set: impl FnOnce(&mut Settings, &Path)) -> Result<(), StartError> {
    let dir = tempfile::tempdir().expect("directory");
    authority(dir.path());
    sign(dir.path(), "now", "server", (".", "server"));
    let mut settings = settings(&dir.path().join("pool"));
    set(&mut settings, dir.path());
    let server = Server::start(&Config::from_settings(settings)?)?;
    assert!(server.listeners().iter().any(|line| line.starts_with("http https://0.0.0.0:")));
    server.stop()
}

#[test]
fn http_beyond_this_machine_is_served_under_tls_and_else_refused() {
    let beyond = |settings: &mut Settings| settings.http.listen = vec!["0.0.0.0:0".to_owned()];
    let plain = start(|settings, _| beyond(settings)).expect_err("refused");
    assert!(matches!(plain, StartError::Exposed { .. }), "{plain}");
    assert!(plain.hint().is_some_and(|hint| hint.contains("--http-tls-cert")), "{plain}");
    start(|settings, dir| {
        beyond(settings);
        settings.http.tls_cert = Some(dir.join("server-cert.pem"));
        settings.http.tls_key = Some(dir.join("server-key.pem"));
    })
    .expect("started");
    // Its own NBD is no safer by that.
    let nbd = start(|settings, dir| {
        tls(settings, dir, "any");
        settings.nbd.listen = vec!["0.0.0.0:0".to_owned()];
    });
    assert!(matches!(nbd, Err(StartError::Exposed { .. })), "{nbd:?}");
    let keyless = start(|settings, dir| {
        beyond(settings);
        settings.http.tls_client_ca = Some(dir.join("ca-cert.pem"));
    });
    assert!(keyless.expect_err("refused").to_string().contains("a certificate and its key"));
}

#[test]
fn a_reload_takes_new_certificates_and_a_bad_pair_leaves_the_old_one() {
    let mut fixture = fixture(&["anyone"], "any");
    let dir = fixture.dir.path().to_owned();
    let config = |set: &dyn Fn(&mut Settings)| {
        let mut settings = settings(&dir.join("pool"));
        tls(&mut settings, &dir, "any");
        set(&mut settings);
        Config::from_settings(settings).expect("config")
    };
    let reload = |fixture: &mut Fixture, config: &Config| {
        fixture.server.as_mut().expect("running").reload(config)
    };
    let others = tempfile::tempdir().expect("directory");
    certificates(others.path(), &["anyone"]);
    let new = |name: &str| others.path().join(name);
    let put = |name: &str, from: PathBuf| fs::copy(from, dir.join(name)).expect("copied");

    // A key that is not the certificate's.
    put("server-key.pem", new("server-key.pem"));
    let error = reload(&mut fixture, &config(&|_| {})).expect_err("refused");
    assert!(matches!(error, StartError::Tls(_)), "{error}");
    assert_eq!(status(shown(&fixture, "anyone", VOLUMES, &[])), 200, "the old pair holds");
    put("server-cert.pem", new("server-cert.pem"));
    assert_eq!(status(shown(&fixture, "anyone", VOLUMES, &[])), 200, "nobody has said so yet");
    assert!(reload(&mut fixture, &config(&|_| {})).expect("loaded").is_empty());
    assert!(shown(&fixture, "anyone", VOLUMES, &[]).is_err(), "its authority has gone");
    assert_eq!(status(curl(&fixture, others.path(), "/healthz", &[])), 200);
    // Clients are of the old authority, until that is another's too.
    let asked = |fixture: &Fixture| {
        let client = others.path().join("anyone");
        let [cert, key] = ["client-cert.pem", "client-key.pem"].map(|name| client.join(name));
        let [cert, key] = [&cert, &key].map(|path| path.to_str().expect("plain"));
        curl(fixture, others.path(), VOLUMES, &["--cert", cert, "--key", key])
    };
    assert!(asked(&fixture).is_err());
    put("ca-cert.pem", new("ca-cert.pem"));
    reload(&mut fixture, &config(&|_| {})).expect("loaded");
    assert_eq!(status(asked(&fixture)), 200);

    // TLS ends with a start, and not before.
    let plain = config(&|settings| {
        settings.http = hindsight_server::HttpSettings {
            listen: settings.http.listen.clone(),
            ..hindsight_server::HttpSettings::default()
        };
    });
    let waits = reload(&mut fixture, &plain).expect("loaded");
    assert!(waits.len() == 1 && waits[0].starts_with("http.tls_cert (TLS on or off)"), "{waits:?}");
    assert_eq!(status(asked(&fixture)), 200);
}
