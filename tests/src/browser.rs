//! Chromium, driven by WebDriver: chromedriver is a small JSON server, and this its client.
//!
//! What is asked of a page is asked until it is so, for a bounded time; nothing sleeps to wait.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::http::Http;

/// How long a page may take to come to what is asked of it, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a driver is started that does not come up.
const STARTS: usize = 5;
/// The key under which WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys that are no letters, as WebDriver writes them.
pub mod key {
    /// Lets go of all keys that are held.
    pub const NONE: &str = "\u{e000}";
    /// Held until all are let go.
    pub const CONTROL: &str = "\u{e009}";
    /// The next stop.
    pub const TAB: &str = "\u{e004}";
    /// Submits.
    pub const ENTER: &str = "\u{e007}";
    /// Closes.
    pub const ESCAPE: &str = "\u{e00c}";
    /// The event before.
    pub const PAGE_UP: &str = "\u{e00e}";
    /// The present.
    pub const END: &str = "\u{e010}";
    /// The oldest moment.
    pub const HOME: &str = "\u{e011}";
    /// A column back.
    pub const LEFT: &str = "\u{e012}";
}

/// A browser without a screen; it ends when it is dropped.
pub struct Browser {
    driver: Child,
    http: Http,
    session: String,
}

impl Browser {
    /// A new browser, with nothing that another one has kept.
    pub fn start() -> Result<Browser> {
        let mut browser = Browser::driver()?;
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                "--no-first-run", "--disable-background-networking", "--disable-sync",
                "--disable-component-update", "--force-color-profile=srgb", "--lang=en"],
        });
        let wishes = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let made = browser.ask("POST", "/session", Some(&wishes))?;
        browser.session = made["sessionId"].as_str().context("a session has a name")?.to_owned();
        Ok(browser)
    }

    /// A driver without a browser. The port that it finds may be another's by the time it listens.
    fn driver() -> Result<Browser> {
        for _ in 0..STARTS {
            let mut driver = Command::new("chromedriver")
                .arg("--port=0")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .context("no chromedriver: scripts/install-packages page")?;
            let said = driver.stdout.take().context("it was piped")?;
            if let Some(port) = port_told(said) {
                let http = Http::tcp((Ipv4Addr::LOCALHOST, port).into());
                return Ok(Browser { driver, http, session: String::new() });
            }
            driver.wait()?;
        }
        bail!("chromedriver did not start in {STARTS} turns")
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let answer = self.http.call(method, path, body)?;
        let value = answer.json()?["value"].take();
        ensure!(answer.status == 200, "{method} {path}: {} {}", value["error"], value["message"]);
        Ok(value)
    }

    fn get(&self, path: &str) -> Result<Value> {
        self.ask("GET", &format!("/session/{}{path}", self.session), None)
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.ask("POST", &format!("/session/{}{path}", self.session), Some(body))
    }

    /// Goes to an address.
    pub fn open(&self, address: &str) -> Result<()> {
        self.post("/url", &json!({"url": address})).map(drop)
    }

    /// The address as the browser shows it.
    pub fn address(&self) -> Result<String> {
        Ok(self.get("/url")?.as_str().context("an address")?.to_owned())
    }

    /// A command of the browser's own protocol.
    pub fn command(&self, name: &str, parameters: &Value) -> Result<Value> {
        self.post("/goog/cdp/execute", &json!({"cmd": name, "params": parameters}))
    }

    /// The size of the screen, and whether it is one of a phone.
    pub fn resize(&self, width: u32, height: u32, is_phone: bool) -> Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1,
            "mobile": is_phone});
        self.command("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// Whether the system's colours are dark.
    pub fn set_dark(&self, is_dark: bool) -> Result<()> {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.command("Emulation.setEmulatedMedia", &features).map(drop)
    }

    /// What a script comes to, which is the body of a function.
    pub fn run(&self, script: &str) -> Result<Value> {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// The element that a selector finds, as soon as it is there.
    pub fn find(&self, selector: &str) -> Result<Element<'_>> {
        let wish = json!({"using": "css selector", "value": selector});
        let began = Instant::now();
        loop {
            match self.post("/element", &wish) {
                Ok(found) => {
                    let id = found[ELEMENT].as_str().context("an element has a name")?.to_owned();
                    return Ok(Element { browser: self, id });
                }
                Err(error) if began.elapsed() > PATIENCE => {
                    return Err(error.context(format!("no {selector} on:\n{}", self.text()?)));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// The first button with this text.
    pub fn button(&self, text: &str) -> Result<Element<'_>> {
        self.wait_for(&format!("a button {text:?}"), || self.has_button(text))?;
        self.run(&format!("{FIND_BUTTON}; return find({text:?}).id ||= 'found-' + Math.random()"))
            .and_then(|id| self.find(&format!("[id={id}]")))
    }

    /// Whether there is a button with this text.
    pub fn has_button(&self, text: &str) -> Result<bool> {
        Ok(self.run(&format!("{FIND_BUTTON}; return Boolean(find({text:?}))"))? == true)
    }

    /// All text that can be seen.
    pub fn text(&self) -> Result<String> {
        let text = self.run("return document.body.innerText")?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Asks until it is so.
    pub fn wait_for(&self, what: &str, mut is: impl FnMut() -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        while !is()? {
            if began.elapsed() > PATIENCE {
                bail!("not within {PATIENCE:?}: {what}; there is:\n{}", self.text()?);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until a text can be seen.
    pub fn wait_for_text(&self, text: &str) -> Result<()> {
        self.wait_for(text, || Ok(self.text()?.contains(text)))
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub fn press(&self, keys: &[&str]) -> Result<()> {
        let stroke = |key: &&str| {
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        };
        let actions: Vec<Value> = keys.iter().flat_map(stroke).collect();
        let all = json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]});
        self.post("/actions", &all).map(drop)
    }

    /// What the browser has logged since it was last asked: `browser` or `performance`.
    pub fn log(&self, kind: &str) -> Result<Vec<Value>> {
        let log = self.post("/se/log", &json!({"type": kind}))?;
        Ok(log.as_array().cloned().unwrap_or_default())
    }

    /// Keeps a picture of the whole page.
    pub fn picture(&self, file: &Path) -> Result<()> {
        let wish = json!({"captureBeyondViewport": true});
        let picture = self.command("Page.captureScreenshot", &wish)?;
        let text = picture["data"].as_str().context("a picture")?;
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(file, decoded(text)?)?;
        Ok(())
    }
}

/// A function of the page that finds a button by its text.
const FIND_BUTTON: &str = "const find = (text) => [...document.querySelectorAll('button')].find(
    (one) => one.textContent.trim() === text && one.offsetParent)";

impl Drop for Browser {
    fn drop(&mut self) {
        // Best effort: the driver would leave its browser behind.
        if !self.session.is_empty() {
            let _ = self.ask("DELETE", &format!("/session/{}", self.session), None);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// An element of the page as it was found; one that was drawn anew is another.
pub struct Element<'a> {
    browser: &'a Browser,
    id: String,
}

impl Element<'_> {
    fn get(&self, what: &str) -> Result<String> {
        let value = self.browser.get(&format!("/element/{}/{what}", self.id))?;
        Ok(value.as_str().unwrap_or_default().to_owned())
    }

    fn post(&self, what: &str, body: &Value) -> Result<()> {
        self.browser.post(&format!("/element/{}/{what}", self.id), body).map(drop)
    }

    /// Presses it with the pointer.
    pub fn click(&self) -> Result<()> {
        self.post("click", &json!({}))
    }

    /// Types into it.
    pub fn enter(&self, text: &str) -> Result<()> {
        self.post("value", &json!({"text": text}))
    }

    /// Types into it instead of what is in it: as a user does, by selecting all of that.
    pub fn replace(&self, text: &str) -> Result<()> {
        self.enter(&format!("{}a{}{text}", key::CONTROL, key::NONE))
    }

    /// Its text, as it can be seen.
    pub fn text(&self) -> Result<String> {
        self.get("text")
    }

    /// An attribute; empty where there is none.
    pub fn attribute(&self, name: &str) -> Result<String> {
        self.get(&format!("attribute/{name}"))
    }

    /// Its role, as assistive technology is told.
    pub fn role(&self) -> Result<String> {
        self.get("computedrole")
    }

    /// Its name, as assistive technology is told.
    pub fn label(&self) -> Result<String> {
        self.get("computedlabel")
    }

    /// Whether it can be pressed.
    pub fn is_enabled(&self) -> Result<bool> {
        Ok(self.browser.get(&format!("/element/{}/enabled", self.id))? == true)
    }
}

/// The port that a driver says it listens at; what it says afterwards is read and dropped.
fn port_told(said: impl std::io::Read + Send + 'static) -> Option<u16> {
    let mut lines = BufReader::new(said).lines().map_while(Result::ok);
    let told = lines.find_map(|line| {
        let (_, rest) = line.split_once("started successfully on port ")?;
        rest.trim_end_matches('.').parse().ok()
    });
    std::thread::spawn(move || lines.for_each(drop));
    told
}

/// The bytes of base 64 (RFC 4648).
fn decoded(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => bail!("not base 64: byte {letter}"),
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn base_64_is_read() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9vYmFy", "foobar")] {
            assert_eq!(decoded(text).expect("read"), bytes.as_bytes());
        }
        assert!(decoded("Z*==").is_err());
    }
}
