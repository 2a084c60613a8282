//! The web page in a real browser: Chromium, driven by WebDriver.
//!
//! Pictures of what was seen are kept in `target/page-shots`.

use std::net::TcpListener;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use hindsight_tests::browser::Browser;
use hindsight_tests::client::Client;
use hindsight_tests::nbd::Request;

use crate::stage::Stage;

mod acting;
mod looking;
mod states;

/// A server with a volume `pg` that has a past, and a browser that looks at it.
pub struct Seen {
    // Before the server, so that it has ended when that ends.
    pub browser: Browser,
    pub stage: Stage,
    /// `http://127.0.0.1:PORT`.
    pub origin: String,
}

fn write(offset: u64, length: usize, byte: u8) -> Request {
    Request::Write { offset, bytes: vec![byte; length], fua: false }
}

impl Seen {
    /// A server without volumes; the browser is at its address, and has its token.
    pub fn empty() -> Result<Seen> {
        // A port that stays when the server is started again.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let http = format!("127.0.0.1:{port}");
        let stage = Stage::with("", "", &["--http", &http, "--nfs", "127.0.0.1:0"])?;
        let origin = format!("http://{http}");
        let browser = Browser::start()?;
        browser.resize(1280, 900, false)?;
        let seen = Seen { browser, stage, origin };
        seen.browser.open(&seen.address_with_token()?)?;
        Ok(seen)
    }

    /// The address that the server prints.
    pub fn address_with_token(&self) -> Result<String> {
        let talk = self.stage.server.talk();
        let lines = talk.lines().filter_map(|line| line.strip_prefix("http "));
        let mut addresses = lines.filter(|line| line.starts_with(&format!("{}/", self.origin)));
        Ok(addresses.next().context("the server prints an address")?.to_owned())
    }

    /// A megabyte of sevens, a mark, a version, and nines over a part; the page of it is open.
    pub fn volume() -> Result<Seen> {
        let seen = Seen::empty()?;
        let server = &seen.stage.server;
        server.run(&["volume", "create", "pg", "--size", "64MiB"])?;
        let mut disk = server.connect("pg")?;
        disk.demand(&write(0, 1 << 20, 7))?;
        disk.demand(&Request::Flush)?;
        server.run(&["mark", "create", "pg", "before-upgrade"])?;
        server.run(&["version", "create", "pg", "--label", "nightly"])?;
        disk.demand(&write(64 << 10, 64 << 10, 9))?;
        disk.demand(&write(32 << 20, 256 << 10, 5))?;
        disk.disconnect()?;
        seen.go("#/v/pg")?;
        seen.browser.find("#slider")?;
        Ok(seen)
    }

    /// Goes to a view of the page.
    pub fn go(&self, fragment: &str) -> Result<()> {
        self.browser.open(&format!("{}/{fragment}", self.origin))
    }

    /// Picks a moment by its expression.
    pub fn pick(&self, moment: &str) -> Result<()> {
        self.browser.find("#moment-text")?.replace(moment)?;
        self.browser.button("Go")?.click()
    }

    /// Picks the moment before the nines.
    pub fn pick_the_mark(&self) -> Result<()> {
        self.pick("mark:before-upgrade")?;
        self.browser.wait_for_text("To the present")
    }

    /// A byte of the present of `pg`.
    pub fn byte(&self, offset: u64) -> Result<u8> {
        let mut disk = self.stage.server.connect("pg")?;
        let bytes = disk.read(offset, 4096)?;
        disk.disconnect()?;
        ensure!(bytes.iter().all(|byte| *byte == bytes[0]), "a block of one byte");
        Ok(bytes[0])
    }

    /// Keeps a picture.
    pub fn picture(&self, name: &str) -> Result<()> {
        let target = std::env::current_exe()?;
        let target = target.ancestors().find(|folder| folder.ends_with("target"));
        let folder = target.map_or_else(|| PathBuf::from("target"), PathBuf::from);
        self.browser.picture(&folder.join("page-shots").join(format!("{name}.png")))
    }

    /// Fails where the page said something in the browser's log, but for what may fail.
    pub fn check_log(&self) -> Result<()> {
        for entry in self.browser.log("browser")? {
            let text = entry["message"].as_str().unwrap_or_default();
            let is_refusal = text.contains("Failed to load resource");
            ensure!(is_refusal, "the browser's log: {entry}");
        }
        Ok(())
    }
}
