//! What the page says and how: to assistive technology, in small and in dark, of hostile names; and
//! where it sends requests.

use anyhow::{Context, Result, ensure};
use hindsight_tests::browser::key;
use hindsight_tests::client::Client;
use serde_json::Value;

use super::{Seen, write};

const VIEWS: [&str; 6] = ["#/", "#/v/pg", "#/pool", "#/jobs", "#/schedules", "#/audit"];
const TABS: [&str; 6] = ["changes", "events", "versions", "marks", "space", "settings"];

#[test]
fn the_slider_says_the_moment_it_is_at() -> Result<()> {
    let seen = Seen::volume()?;
    let slider = seen.browser.find("#slider")?;
    ensure!(slider.role()? == "slider", "{}", slider.role()?);
    ensure!(slider.label()? == "Picked moment", "{}", slider.label()?);
    let said = || slider.attribute("aria-valuetext");
    ensure!(said()?.starts_with("the present, 20"), "{}", said()?);
    slider.enter(key::LEFT)?;
    seen.browser.wait_for("another moment", || Ok(!said()?.starts_with("the present")))?;
    slider.enter(key::HOME)?;
    seen.browser.wait_for("the oldest moment", || Ok(said()?.ends_with(", seq 0")))?;
    ensure!(seen.browser.address()?.ends_with("?at=seq%3A0"), "{}", seen.browser.address()?);
    seen.pick_the_mark()?;
    let marks = seen.stage.server.http().get("/api/v1/volumes/pg/marks")?;
    let told = format!(", seq {}", marks[0]["seq"]);
    seen.browser.wait_for("the mark's moment", || Ok(said()?.ends_with(&told)))?;
    // A link is the picture that was seen.
    let link = seen.browser.address()?;
    seen.go("#/pool")?;
    seen.browser.open(&link)?;
    let slider = seen.browser.find("#slider")?;
    seen.browser
        .wait_for("the same moment", || Ok(slider.attribute("aria-valuetext")?.ends_with(&told)))
}

#[test]
fn what_is_copied_opens_the_moment_that_is_shown() -> Result<()> {
    let seen = Seen::volume()?;
    seen.pick_the_mark()?;
    let mut texts = Vec::new();
    seen.browser.wait_for("addresses of the moment", || {
        let codes =
            "return [...document.querySelectorAll('.copy code')].map((one) => one.textContent)";
        texts = seen.browser.run(codes)?.as_array().cloned().unwrap_or_default();
        Ok(texts.iter().any(|text| text.as_str().is_some_and(|text| text.contains("@seq:"))))
    })?;
    let uri = texts[0].as_str().context("a URI")?;
    let read = std::process::Command::new("qemu-io")
        .args(["-r", "-f", "raw", "-c", "read -P 7 0 1M", uri])
        .output()?;
    ensure!(read.status.success(), "{uri}: {read:?}");
    let text = String::from_utf8_lossy(&read.stdout).into_owned();
    ensure!(text.contains("read 1048576") && !text.contains("failed"), "{text}");
    let name = texts.last().and_then(Value::as_str).context("a name")?;
    seen.stage.server.run(&["resolve", name]).map(drop)
}

#[test]
fn nothing_scrolls_sideways_on_a_phone_and_all_is_seen_in_dark_and_light() -> Result<()> {
    let seen = Seen::volume()?;
    let browser = &seen.browser;
    seen.stage.server.run(&["share", "create", "home"])?;
    seen.stage.server.run(&["group", "create", "db", "pg"])?;
    for (kind, width, height, is_phone) in
        [("phone", 360, 780, true), ("tablet", 768, 1000, true), ("desk", 1280, 900, false)]
    {
        browser.resize(width, height, is_phone)?;
        for is_dark in [false, true] {
            browser.set_dark(is_dark)?;
            let paper = "return getComputedStyle(document.documentElement).backgroundColor";
            let wanted = if is_dark { "rgb(15, 21, 28)" } else { "rgb(255, 255, 255)" };
            ensure!(browser.run(paper)? == wanted, "the system's colours");
            let colours = if is_dark { "dark" } else { "light" };
            for view in VIEWS {
                seen.go(view)?;
                browser.find(if view == "#/v/pg" { "#slider" } else { "article h1" })?;
                ensure_narrow(&seen, width, view)?;
                let name = view.trim_start_matches("#/").replace('/', "-");
                let name = if name.is_empty() { "volumes" } else { &name };
                seen.picture(&format!("{name}-{kind}-{colours}"))?;
            }
        }
    }
    browser.resize(360, 780, true)?;
    seen.go("#/v/pg")?;
    for tab in TABS {
        browser.find(&format!("#tab-{tab}"))?.click()?;
        browser.find(&format!("#panel[aria-labelledby=tab-{tab}]"))?;
        ensure_narrow(&seen, 360, tab)?;
    }
    let small = "return [...document.querySelectorAll('button, nav a, input:not([type=checkbox])')]
        .filter((one) => one.offsetParent && one.getBoundingClientRect().height < 44)
        .map((one) => one.outerHTML)";
    let small = browser.run(small)?;
    ensure!(small.as_array().is_some_and(Vec::is_empty), "too small for a finger: {small}");
    seen.check_log()
}

fn ensure_narrow(seen: &Seen, width: u32, view: &str) -> Result<()> {
    let across = seen.browser.run("return document.documentElement.scrollWidth")?;
    ensure!(across.as_u64() <= Some(width.into()), "{view} is {across} wide on {width}");
    Ok(())
}

#[test]
fn a_label_with_quotes_angle_brackets_and_letters_from_the_right_is_shown_and_breaks_nothing()
-> Result<()> {
    let seen = Seen::volume()?;
    let label = "<img src=x onerror=alert(1)> \"it's\" \u{5e9}\u{5dc}\u{5d5}\u{5dd} ${'x'}";
    seen.stage.server.run(&["version", "create", "pg", "--label", label])?;
    seen.browser.find("#tab-versions")?.click()?;
    seen.browser.wait_for_text(label)?;
    seen.browser.find("#tab-events")?.click()?;
    seen.browser.wait_for_text(label)?;
    seen.picture("hostile-label")?;
    let images = seen.browser.run("return document.querySelectorAll('main img').length")?;
    ensure!(images == 0, "a label is text");
    seen.go("#/v/%3Cb%3Enone%22")?;
    seen.browser.wait_for_text("<b>none\"")?;
    seen.check_log()
}

#[test]
fn no_request_leaves_the_servers_own_address_and_none_shows_the_token() -> Result<()> {
    let seen = Seen::volume()?;
    for view in VIEWS {
        seen.go(view)?;
        seen.browser.find("article h1")?;
    }
    let mut count = 0;
    for entry in seen.browser.log("performance")? {
        let message: Value = serde_json::from_str(entry["message"].as_str().unwrap_or_default())?;
        let message = &message["message"];
        if message["method"] != "Network.requestWillBeSent" {
            continue;
        }
        let url = message["params"]["request"]["url"].as_str().unwrap_or_default();
        if url.starts_with("data:") || url.starts_with("chrome") || url == "about:blank" {
            continue;
        }
        ensure!(url.starts_with(&format!("{}/", seen.origin)), "a request to {url}");
        let shows = url.contains("token=");
        ensure!(!shows || message["params"]["type"] == "Document", "the token is in {url}");
        count += 1;
    }
    ensure!(count > 40, "only {count} requests were seen");
    let address = seen.browser.address()?;
    ensure!(!address.contains("token"), "{address}");
    ensure!(seen.browser.run("return document.cookie")? == "", "no cookie");
    Ok(())
}

#[test]
fn hundreds_of_versions_are_counted_on_the_line_and_listed_from_the_newest() -> Result<()> {
    let seen = Seen::volume()?;
    let http = seen.stage.server.http();
    let mut disk = seen.stage.server.connect("pg")?;
    for turn in 0..520_u64 {
        disk.demand(&write(turn % 100 * 4096, 4096, turn as u8))?;
        http.expect("POST", "/api/v1/volumes/pg/versions", None)?;
    }
    disk.disconnect()?;
    seen.go("#/pool")?;
    seen.go("#/v/pg?tab=events")?;
    seen.browser.wait_for_text("More than can be listed at once: ")?;
    seen.picture("many-versions")?;
    seen.browser.find("#tab-versions")?.click()?;
    seen.browser.wait_for_text("Show more (421 left)")?;
    let first = seen.browser.find("#panel tbody td")?.text()?;
    ensure!(first == "520", "the newest is first: {first}");
    seen.check_log()
}
