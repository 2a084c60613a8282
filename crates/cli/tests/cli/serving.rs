//! `hindsight serve` as a process: what it says, what it refuses, how it stops.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use crate::fixture::{Fixture, hindsight, run};

#[test]
fn it_says_where_it_listens_then_ready_and_stops_in_order() {
    let fixture = Fixture::new();
    let pool = fixture.path("pool");
    let [nbd, nbd_tcp, http, http_tcp, ready] = &fixture.lines[..] else {
        panic!("{:?}", fixture.lines)
    };
    assert_eq!(*nbd, format!("nbd unix:{}/nbd.sock", pool.display()));
    assert!(nbd_tcp.starts_with("nbd 127.0.0.1:"), "{nbd_tcp}");
    assert_eq!(*http, format!("http unix:{}/api.sock", pool.display()));
    let token = fs::read_to_string(pool.join("token")).expect("the token");
    assert!(http_tcp.starts_with("http http://127.0.0.1:"), "{http_tcp}");
    assert!(http_tcp.ends_with(&format!("/?token={}", token.trim())), "{http_tcp}");
    assert_eq!(ready, "ready");
    let (code, said, _dir) = fixture.stop();
    assert_eq!((code, said), (0, vec!["stopping".to_owned(), "stopped".to_owned()]));
    assert!(!pool.join("api.sock").exists() && !pool.join("nbd.sock").exists());
}

#[test]
fn over_tcp_a_command_needs_the_token_and_takes_it_as_it_comes() {
    let fixture = Fixture::new();
    let (address, token) = fixture.http_address();
    let server = format!("http://{address}");
    let list = |server: &str, with: &dyn Fn(&mut std::process::Command)| {
        let mut command = hindsight();
        with(command.args(["volume", "list", "--server", server]));
        let output = command.output().expect("run");
        (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    let (code, said) = list(&server, &|_| {});
    assert_eq!(code, Some(12), "{said}");
    assert!(said.contains("error: requests over TCP need the server's token"), "{said}");
    assert!(said.contains("hint: ") && said.contains("--token-file DIR/token"), "{said}");
    assert_eq!(list(&server, &|c| _ = c.env("HINDSIGHT_TOKEN", "another-one-x")).0, Some(12));
    let file = fixture.path("pool/token");
    for (how, ran) in [
        ("as serve prints it", list(&format!("{server}/?token={token}"), &|_| {})),
        ("a variable", list(&server, &|c| _ = c.env("HINDSIGHT_TOKEN", token))),
        ("a flag", list(&server, &|c| _ = c.args(["--token", token]))),
        ("a file", list(&server, &|c| _ = c.arg("--token-file").arg(&file))),
    ] {
        assert_eq!(ran.0, Some(0), "{how}: {}", ran.1);
    }
    let missing = list(&server, &|c| _ = c.args(["--token-file", "/nonexistent"]));
    assert_eq!(missing.0, Some(1), "{}", missing.1);
}

fn limit(fixture: &Fixture, bytes: Option<u64>) {
    let pid = rustix::process::Pid::from_raw(fixture.pid().try_into().expect("a pid"));
    let limit = rustix::process::Rlimit { current: bytes, maximum: None };
    rustix::process::prlimit(pid, rustix::process::Resource::As, limit).expect("limited");
}

#[test]
fn a_panic_of_any_thread_ends_readiness_at_once_and_the_process_soon() {
    // No address space for one more stack: the thread that the first request needs cannot begin,
    // and its caller panics. Stacks are so large that there is room for all but them: a process
    // without memory is gone before anybody asks it.
    const STACK_KIB: u64 = 256 << 10;
    let limited = || {
        let stack = (STACK_KIB << 10).to_string();
        let fixture = Fixture::in_environment(&[("RUST_MIN_STACK", &stack)]);
        let status = fs::read_to_string(format!("/proc/{}/status", fixture.pid()));
        let status = status.expect("it runs");
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size");
        let size_kib: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number");
        limit(&fixture, Some((size_kib + STACK_KIB - 1) << 10));
        fixture
    };
    let mut fixture = limited();
    // Seldom a thread of the start is there still.
    let mut starts = 1;
    while !fixture.http("/healthz").is_empty() {
        starts += 1;
        assert!(starts < 4, "nobody is left to answer");
        fixture = limited();
    }
    limit(&fixture, None);
    for path in ["/readyz", "/healthz"] {
        let answer = fixture.http(path);
        assert!(answer.starts_with("HTTP/1.1 503"), "{path}: {answer}");
    }
    let (code, said, _dir) = fixture.ended();
    assert_eq!(code, 1, "{said:?}");
    assert!(said.iter().any(|line| line.contains("panicked at")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("the server ends")), "{said:?}");
}

#[test]
fn systemd_is_told() {
    let dir = tempfile::tempdir().expect("directory");
    let socket = dir.path().join("notify");
    let notified = UnixDatagram::bind(&socket).expect("bind");
    let mut child = hindsight()
        .args(["serve", "--pool-size", "1GiB", "--nbd", "none", "--http", "127.0.0.1:0", "--pool"])
        .arg(dir.path().join("pool"))
        .env("NOTIFY_SOCKET", &socket)
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    let mut told = [0; 64];
    let length = notified.recv(&mut told).expect("told");
    assert_eq!(told[..length].trim_ascii_end(), b"READY=1");
    let pid = child.id().to_string();
    std::process::Command::new("kill").arg(pid).status().expect("kill");
    let length = notified.recv(&mut told).expect("told");
    assert_eq!(told[..length].trim_ascii_end(), b"STOPPING=1");
    assert_eq!(child.wait().expect("wait").code(), Some(0));
}

#[test]
fn a_second_server_and_wrong_settings_are_refused() {
    let fixture = Fixture::new();
    let pool = fixture.path("pool");
    let pool = pool.to_str().expect("UTF-8");
    let refused = |arguments: &[&str]| {
        let ran = run(&[&["serve"], arguments].concat());
        assert!(ran.err.starts_with("error: "), "{ran:?}");
        (ran.code, ran.err)
    };
    assert_eq!(refused(&["--pool", pool]).0, 11);
    assert_eq!(refused(&[]).0, 2);
    assert_eq!(refused(&["--pool", "x", "--iscsi", "nowhere"]).0, 2);
    assert_eq!(refused(&["--pool", "x", "--iscsi", "0.0.0.0:0"]).0, 2);
    assert_eq!(refused(&["--pool", "x", "--nbd", "0.0.0.0:0"]).0, 2);
    assert_eq!(refused(&["--pool", "x", "--tls-cert", "c"]).0, 2);
    assert_eq!(refused(&["--pool", "x", "--config", "/nonexistent"]).0, 2);
    let config = fixture.path("config.toml");
    fs::write(&config, "pool = \"/x\"\nport = 7\n").expect("write");
    let (code, said) = refused(&["--config", config.to_str().expect("UTF-8")]);
    assert_eq!(code, 2);
    assert!(said.contains("unknown field `port`"), "{said}");
}

#[test]
fn the_example_configuration_is_read() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/config.toml");
    let text = fs::read_to_string(example).expect("dist/config.toml");
    let settings = server::Settings::from_toml(&text, &|_| None).expect("settings");
    server::Config::from_settings(settings).expect("config");
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let dir = tempfile::tempdir().expect("directory");
    let pool = dir.path().join("pool");
    let full = fs::File::options().write(true).open("/dev/full").expect("a device that is full");
    let notified = UnixDatagram::bind(dir.path().join("notify")).expect("bind");
    // At this level each request is a line.
    let mut child = hindsight()
        .args(["serve", "--pool-size", "1GiB", "--memory", "32MiB", "--log-level", "trace"])
        .args(["--nbd", &format!("unix:{}/nbd.sock", pool.display())])
        .args(["--http", &format!("unix:{}/api.sock", pool.display()), "--pool"])
        .arg(&pool)
        .env("NOTIFY_SOCKET", dir.path().join("notify"))
        .stderr(Stdio::from(full))
        .spawn()
        .expect("spawn");
    notified.recv(&mut [0; 64]).expect("told that it is ready");
    let mut create = hindsight();
    create.args(["volume", "create", "disk", "--size", "16MiB"]);
    create.env("HINDSIGHT_SERVER", format!("unix:{}/api.sock", pool.display()));
    let created = create.output().expect("run");
    let export = format!("nbd+unix:///disk?socket={}/nbd.sock", pool.display());
    let io = || {
        let mut command = std::process::Command::new("qemu-io");
        command.args(["-f", "raw", "-c", "write -P 7 0 1M", "-c", "flush", "-c", "read -P 7 0 1M"]);
        command.arg(&export).output().expect("qemu-io (apt-get install qemu-utils)")
    };
    // The second client comes after threads have had a line to write.
    let served = [io(), io()];
    let pid = child.id().to_string();
    std::process::Command::new("kill").arg(pid).status().expect("kill");
    let code = child.wait().expect("wait").code();
    assert!(created.status.success(), "{created:?}");
    assert!(served.iter().all(|io| io.status.success()), "{served:?}");
    assert_eq!(code, Some(0));
}
