//! NBD with certificates whose common names are tokens' names.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use units::Role;

use crate::certificates::certificates;
use crate::fixture::{Fixture, new_volume};
use crate::rights::token;

fn fixture(clients: &[&str]) -> Fixture {
    let fixture = Fixture::with(|settings, dir| {
        certificates(dir, clients);
        settings.nbd.tls_cert = Some(dir.join("server-cert.pem"));
        settings.nbd.tls_key = Some(dir.join("server-key.pem"));
        settings.nbd.tls_client_ca = Some(dir.join("ca-cert.pem"));
        settings.access.certificates = Some("named".to_owned());
    });
    for name in ["pg", "zulu"] {
        fixture.client.create_volume(&new_volume(name, 1 << 20)).expect("made");
    }
    fixture
}

/// Python with a handle of libnbd that has the certificate of a client, as `h`.
fn python(fixture: &Fixture, client: &str, script: &str) -> Child {
    let mut listeners = fixture.server().listeners().iter();
    let address = listeners.find_map(|line| line.strip_prefix("nbd 127.0.0.1:"));
    let port = address.and_then(|port| port.split(' ').next()).expect("a port");
    let head = format!(
        "import nbd, sys\nh = nbd.NBD()\nh.set_tls(nbd.TLS_REQUIRE)\n\
         h.set_tls_certificates('{}')\n\
         def go(name):\n    h.set_export_name(name)\n    \
         h.connect_tcp('127.0.0.1', '{port}')\n    return h\n\
         def refused(work):\n    try:\n        work()\n    except nbd.Error as e:\n        \
         return e.string + ' ' + str(e.errno)\n    raise SystemExit('it was done')\n",
        fixture.dir.path().join(client).display()
    );
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", &(head + script)]).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("python3-libnbd: scripts/install-packages test")
}

fn says(child: Child) -> String {
    let output = child.wait_with_output().expect("it ran");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn a_certificate_may_what_the_token_of_its_name_may_until_that_is_revoked() {
    let fixture = fixture(&["reader", "writer", "keeper", "nobody"]);
    for (name, role) in
        [("reader", Role::Reader), ("writer", Role::Operator), ("keeper", Role::Keeper)]
    {
        fixture.client.create_token(&token(name, role, &["pg*"])).expect("made");
    }
    // One writes what it sees, and nothing else is there for it.
    let none = says(python(&fixture, "writer", "print(refused(lambda: go('none')))"));
    let unseen = says(python(&fixture, "writer", "print(refused(lambda: go('zulu')))"));
    assert_eq!(unseen, none.replace("none", "zulu"));
    let unnamed = says(python(&fixture, "writer", "print(refused(lambda: go('')))"));
    assert!(!unnamed.contains("zulu") && !unnamed.contains("2 volumes"), "{unnamed}");
    says(python(
        &fixture,
        "writer",
        "go('pg').pwrite(b'x' * 4096, 0)\nassert not h.is_read_only()",
    ));
    // Another reads it, and writes nothing, whatever flags it goes by.
    let script = "go('pg')\nassert h.is_read_only() and h.pread(1, 0) == b'x'\n\
                  h.set_strict_mode(0)\nprint(refused(lambda: h.pwrite(b'y' * 4096, 0)))\n\
                  print(refused(lambda: h.trim(4096, 0)))\nassert h.pread(1, 0) == b'x'";
    let text = says(python(&fixture, "reader", script));
    assert_eq!(text.matches("EPERM").count() + text.matches(" 1\n").count(), 2, "{text}");
    // What lists shows what may be opened.
    let script = "h.set_opt_mode(True)\ngo('pg')\nnames = []\n\
                  h.opt_list(lambda name, text: names.append(name))\nprint(names)\n\
                  h.opt_abort()";
    assert_eq!(says(python(&fixture, "reader", script)).trim(), "['pg']");
    // A role that reads no data, and a certificate that is no token's.
    let text = says(python(&fixture, "keeper", "print(refused(lambda: go('pg')))"));
    assert!(text.contains("policy") || text.contains("reads no data"), "{text}");
    let text = says(python(&fixture, "nobody", "print(refused(lambda: go('pg')))"));
    assert!(!text.contains("zulu"), "{text}");
    // The audit log says whose it was.
    says(python(&fixture, "writer", "go('pg').pwrite(b'z' * 4096, 0)"));

    // A session ends with the request after its token was revoked.
    let script = "go('pg')\nassert h.pread(1, 0) == b'z'\nprint('there', flush=True)\n\
                  sys.stdin.readline()\nprint(refused(lambda: h.pread(1, 0)))";
    let mut child = python(&fixture, "reader", script);
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "there\n");
    fixture.client.revoke_token("reader").expect("revoked");
    drop(child.stdin.take());
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the rest");
    assert!(child.wait().expect("ended").success() && !rest.is_empty(), "{rest}");
    says(python(&fixture, "reader", "print(refused(lambda: go('pg')))"));
}
