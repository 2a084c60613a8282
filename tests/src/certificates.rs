//! Certificates as an operator makes them, with the `openssl` program.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::command::run;

/// A certificate authority in `folder`: `ca-cert.pem`, `ca-key.pem`.
pub fn authority(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let own = ["-subj", "/CN=test CA", "-keyout", "ca-key.pem", "-out", "ca-cert.pem"];
    run(request(folder).args(own)).map(drop)
}

/// A certificate signed by the authority in `folder`: `NAME-cert.pem`, `NAME-key.pem`, good for
/// `localhost`.
pub fn signed(folder: &Path, name: &str, subject: &str) -> Result<()> {
    let (key, cert) = (format!("{name}-key.pem"), format!("{name}-cert.pem"));
    run(request(folder)
        .args(["-CA", "ca-cert.pem", "-CAkey", "ca-key.pem", "-extensions", "usr_cert"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-subj", subject])
        .args(["-keyout", &key, "-out", &cert]))
    .map(drop)
}

fn request(folder: &Path) -> Command {
    let mut openssl = Command::new("openssl");
    openssl.current_dir(folder).args(["req", "-x509", "-nodes", "-days", "30"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl
}
