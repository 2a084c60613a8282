//! Certificates of an authority of the test's own, by openssl.

use std::path::Path;
use std::process::Command;

const AT_TIME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/at-time");
const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/// Runs openssl in a directory, with words that blanks divide, after a clock that says `date`.
fn openssl(dir: &Path, date: &str, words: &str) {
    let mut command = Command::new(AT_TIME);
    command.args([date, "openssl"]).args(words.split(' ')).current_dir(dir);
    let output = command.output().expect("run");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an authority in a directory.
pub fn authority(dir: &Path) {
    let words = format!("req -x509 {NEW_KEY} -subj /CN=ca -keyout ca-key.pem -out ca-cert.pem");
    openssl(dir, "now", &words);
    std::fs::write(dir.join("names"), "subjectAltName=IP:127.0.0.1").expect("write");
}

/// Has it sign a certificate for a month from `date` on, as `into/kind-cert.pem`.
pub fn sign(dir: &Path, date: &str, name: &str, (into, kind): (&str, &str)) {
    std::fs::create_dir_all(dir.join(into)).expect("a directory");
    let key = format!("{into}/{kind}-key.pem");
    openssl(dir, date, &format!("req {NEW_KEY} -subj /CN={name} -keyout {key} -out request"));
    openssl(
        dir,
        date,
        &format!(
            "x509 -req -in request -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -extfile \
             names -out {into}/{kind}-cert.pem"
        ),
    );
    if into != "." {
        let copy = dir.join(into).join("ca-cert.pem");
        std::fs::copy(dir.join("ca-cert.pem"), copy).expect("copied");
    }
}

/// Certificates for a server and for clients of these names, each in a directory of its own.
pub fn certificates(dir: &Path, clients: &[&str]) {
    authority(dir);
    sign(dir, "now", "server", (".", "server"));
    clients.iter().for_each(|name| sign(dir, "now", name, (name, "client")));
}
