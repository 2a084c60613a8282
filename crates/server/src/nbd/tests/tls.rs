//! TLS: asked for on TCP, with and without certificates of clients.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::memory::{DISK, MemoryExports};
use super::rig::{Rig, eventually};
use super::tools::{NEW_KEY, openssl, python};
use crate::Part;
use crate::serving::Limits;
use crate::tls::{TlsError, TlsFiles, TlsFrontEnd, load_tls, untimely};

/// A directory as libnbd wants it: `ca-cert.pem`, `client-cert.pem`, `client-key.pem`, and the
/// server's.
struct Certificates {
    dir: tempfile::TempDir,
}

impl Certificates {
    fn make() -> Certificates {
        let dir = tempfile::tempdir().expect("directory");
        let make = |words: &str| openssl(dir.path(), "now", words);
        make(&format!(
            "req -x509 {NEW_KEY} -subj /CN=authority -keyout ca-key.pem -out ca-cert.pem"
        ));
        std::fs::write(dir.path().join("names"), "subjectAltName=IP:127.0.0.1").expect("write");
        for name in ["server", "client"] {
            make(&format!("req {NEW_KEY} -subj /CN={name} -keyout {name}-key.pem -out request"));
            make(&format!(
                "x509 -req -in request -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial \
                 -extfile names -out {name}-cert.pem"
            ));
        }
        Certificates { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn files(&self, cert: &str, key: &str) -> TlsFiles {
        TlsFiles { cert: self.path(cert), key: self.path(key), client_ca: None }
    }

    fn rig(&self, authenticates: bool) -> Rig {
        self.rig_of(MemoryExports::default(), authenticates)
    }

    fn rig_of(&self, exports: MemoryExports, authenticates: bool) -> Rig {
        let client_ca = authenticates.then(|| self.path("ca-cert.pem"));
        let files = TlsFiles { client_ca, ..self.files("server-cert.pem", "server-key.pem") };
        let tls = load_tls(&files, TlsFrontEnd::Nbd).expect("usable files");
        Rig::start_on(1, Arc::new(exports), Limits::default(), Some(tls))
    }
}

fn script(rig: &Rig, certificates: &Certificates, tls: &str, body: &str) -> String {
    let head = format!(
        "import nbd\nh = nbd.NBD()\nh.set_tls(nbd.TLS_{tls})\n\
         h.set_tls_certificates('{}')\nh.set_export_name('disk')\n\
         connect = lambda: h.connect_tcp('127.0.0.1', '{}')\n",
        certificates.dir.path().display(),
        rig.tcp.port()
    );
    python(&format!("{head}{body}"))
}

const WORKS: &str = "
connect()
assert h.get_tls_negotiated()
for size in (1, 4096, 65536, 1 << 20, 8 << 20):
    data = bytes(range(256)) * (size // 256) or b'x'
    h.pwrite(data, 12345)
    assert h.pread(len(data), 12345) == data
h.flush()
buffers = [nbd.Buffer(65536) for _ in range(64)]
cookies = [h.aio_pread(b, i * 65536) for i, b in enumerate(buffers)]
while cookies:
    cookies = [c for c in cookies if not h.aio_command_completed(c)]
    if cookies: h.poll(-1)
h.shutdown()
";

const FAILS: &str = "
try:
    connect()
    h.pread(1, 0)
    raise SystemExit('connected')
except nbd.Error as error:
    print(error.string)
";

const GOES: &str = "
import os
import time
connect()
h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b'x' * 4096)), 0)
while h.aio_get_direction() & nbd.AIO_DIRECTION_WRITE:
    h.poll(-1)
for _ in range(30000):
    if os.path.exists(go):
        break
    time.sleep(0.001)
os._exit(0)
";

#[test]
fn a_write_that_waits_is_given_up_when_its_tls_client_goes() {
    let certificates = Certificates::make();
    let exports = MemoryExports::default();
    let disk = Arc::clone(&exports.disk);
    let rig = certificates.rig_of(exports, false);
    disk.set_room(0);
    let go = rig.dir.path().join("go");
    let body = format!("go = '{}'\n{GOES}", go.display());
    let waiting = &rig.context.counters.writes_waiting;
    std::thread::scope(|scope| {
        scope.spawn(|| script(&rig, &certificates, "REQUIRE", &body));
        eventually("it waits", || waiting.load(Ordering::SeqCst) == 1);
        std::fs::write(&go, "").expect("written");
    });
    eventually("given up", || rig.attached() == 0);
    disk.set_room(u64::MAX);
    assert!(disk.bytes.lock().iter().all(|&byte| byte == 0), "nothing was written");
}

/// Writes, and says goodbye once the first write waits.
const PARTS: &str = "
import os
import time
connect()
cookies = []
def send(place):
    data = nbd.Buffer.from_bytearray(bytearray(b'x' * 4096))
    cookies.append(h.aio_pwrite(data, place))
def sent():
    while h.aio_get_direction() & nbd.AIO_DIRECTION_WRITE:
        h.poll(-1)
send(0)
sent()
for _ in range(30000):
    if os.path.exists(go):
        break
    time.sleep(0.001)
send(4096)
h.aio_disconnect()
sent()
os.rename(go, gone)
while not (h.aio_is_closed() or h.aio_is_dead()):
    h.poll(-1)
for cookie in cookies:
    assert h.aio_command_completed(cookie)
";

#[test]
fn a_tls_client_gets_its_answers_though_its_goodbye_is_behind_a_write_that_waits() {
    let certificates = Certificates::make();
    let exports = MemoryExports::default();
    let disk = Arc::clone(&exports.disk);
    let rig = certificates.rig_of(exports, false);
    disk.set_room(0);
    let (go, gone) = (rig.dir.path().join("go"), rig.dir.path().join("gone"));
    let body = format!("go, gone = '{}', '{}'\n{PARTS}", go.display(), gone.display());
    let waiting = &rig.context.counters.writes_waiting;
    std::thread::scope(|scope| {
        scope.spawn(|| script(&rig, &certificates, "REQUIRE", &body));
        eventually("it waits", || waiting.load(Ordering::SeqCst) == 1);
        std::fs::write(&go, "").expect("written");
        eventually("it said goodbye", || gone.exists());
        // Another client of the same data thread, which has seen that by then.
        script(&rig, &certificates, "REQUIRE", "connect()\nassert h.pread(1, 0) == b'\\0'\n");
        assert_eq!(waiting.load(Ordering::SeqCst), 1);
        disk.set_room(u64::MAX);
    });
    assert!(disk.bytes.lock()[..8192].iter().all(|&byte| byte == b'x'));
}

#[test]
fn libnbd_reads_and_writes_over_tls() {
    let certificates = Certificates::make();
    script(&certificates.rig(true), &certificates, "REQUIRE", WORKS);
    script(&certificates.rig(false), &certificates, "REQUIRE", WORKS);
}

const STAYS: &str = "
import os
import time
connect()
for _ in range(30000):
    if os.path.exists(go):
        break
    time.sleep(0.001)
";

#[test]
fn a_client_is_called_by_the_subject_of_the_certificate_that_it_had_to_show() {
    let certificates = Certificates::make();
    for (authenticates, ending) in [(true, " CN=client"), (false, "")] {
        let rig = certificates.rig(authenticates);
        let go = rig.dir.path().join("go");
        let body = format!("go = '{}'\n{STAYS}", go.display());
        let attachments = &rig.context.attachments;
        let clients = std::thread::scope(|scope| {
            scope.spawn(|| script(&rig, &certificates, "REQUIRE", &body));
            eventually("it is attached", || attachments.count(DISK) == 1);
            let clients = attachments.close(DISK, Part::Present, false, Duration::ZERO);
            std::fs::write(&go, "").expect("written");
            clients.expect_err("it is attached")
        });
        let client = clients[0].strip_prefix("127.0.0.1:").expect("an address");
        assert_eq!(client.trim_start_matches(|c: char| c.is_ascii_digit()), ending);
    }
}

#[test]
fn a_tcp_client_without_tls_is_told_to_use_it() {
    let certificates = Certificates::make();
    let rig = certificates.rig(true);
    let told = script(&rig, &certificates, "DISABLE", FAILS);
    assert!(told.to_lowercase().contains("tls"), "{told}");
}

#[test]
fn a_client_that_another_authority_signed_is_refused() {
    let certificates = Certificates::make();
    let rig = certificates.rig(true);
    let others = Certificates::make();
    // It trusts the server, so that only the server can refuse.
    std::fs::copy(certificates.path("ca-cert.pem"), others.path("ca-cert.pem")).expect("copy");
    script(&rig, &others, "REQUIRE", FAILS);
    let failed = &rig.context.counters.handshakes_failed;
    eventually("the handshake fails", || failed.load(Ordering::SeqCst) == 1);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let certificates = Certificates::make();
    let load = |cert, key| load_tls(&certificates.files(cert, key), TlsFrontEnd::Nbd);
    let (cert, key) = ("server-cert.pem", "server-key.pem");
    assert!(matches!(load("nope.pem", key), Err(TlsError::File { .. })));
    assert!(matches!(load(key, key), Err(TlsError::NoCertificate { .. })));
    assert!(matches!(load(cert, "client-key.pem"), Err(TlsError::Unfit { .. })));
}

#[test]
fn a_session_is_not_taken_up_again_where_clients_show_certificates() {
    let certificates = Certificates::make();
    for front_end in [TlsFrontEnd::Nbd, TlsFrontEnd::Http] {
        let mut files = certificates.files("server-cert.pem", "server-key.pem");
        let may = |files: &TlsFiles| {
            let tls = load_tls(files, front_end).expect("usable files");
            assert!(!tls.ticketer.enabled());
            (tls.session_storage.can_cache(), tls.send_tls13_tickets > 0)
        };
        assert_eq!(may(&files), (true, true));
        files.client_ca = Some(certificates.path("ca-cert.pem"));
        assert_eq!(may(&files), (false, false));
    }
}

#[test]
fn a_certificate_that_has_expired_or_is_not_valid_yet_is_found() {
    let dir = tempfile::tempdir().expect("directory");
    let found = |from: &str, days: u32| {
        let subject = "-subj /CN=storage -keyout key.pem -out cert.pem";
        openssl(dir.path(), from, &format!("req -x509 {NEW_KEY} {subject} -days {days}"));
        let cert = dir.path().join("cert.pem");
        [0, 30].map(|days| untimely(&cert, Duration::from_secs(days * 86_400)))
    };
    let [now, later] = found("2020-01-01", 366).map(|why| why.expect("found"));
    assert!(now.contains("expired") && later.contains("expired"), "{now}, {later}");
    assert!(found("2200-01-01", 365)[0].as_ref().is_some_and(|why| why.contains("not valid yet")));
    assert_eq!(found("2020-01-01", 180 * 365), [None, None]);
    let certificates = Certificates::make();
    let signed = certificates.path("server-cert.pem");
    assert_eq!(untimely(&signed, Duration::ZERO), None, "signed by another");
}
