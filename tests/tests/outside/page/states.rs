//! The page when something is lacking: volumes, the token, the server, the moment.

use anyhow::{Result, ensure};

use super::Seen;

#[test]
fn without_volumes_it_says_how_one_is_made() -> Result<()> {
    let seen = Seen::empty()?;
    seen.browser.wait_for_text("hindsight volume create pg --size 10GiB")?;
    seen.picture("no-volumes")?;
    seen.stage.server.run(&["volume", "create", "pg", "--size", "1GiB"])?;
    seen.browser.wait_for_text("0 B present")?;
    seen.check_log()
}

#[test]
fn the_token_leaves_the_address_and_without_one_the_page_asks_for_it() -> Result<()> {
    let seen = Seen::volume()?;
    let browser = &seen.browser;
    let address = seen.address_with_token()?;
    browser.open(&format!("{address}#/v/pg"))?;
    browser.find("#slider")?;
    ensure!(browser.address()? == format!("{}/#/v/pg", seen.origin), "{}", browser.address()?);
    browser.run("sessionStorage.clear(); location.reload()")?;
    browser.find("#token")?;
    ensure!(!browser.text()?.contains("pg"), "nothing is told without a token");
    seen.picture("no-token")?;
    browser.find("#token")?.enter("wrong")?;
    browser.button("Go on")?.click()?;
    browser.wait_for_text("is not the server\u{2019}s")?;
    let (_, token) = address.split_once("token=").unwrap_or_default();
    browser.find("#token")?.enter(token)?;
    browser.button("Go on")?.click()?;
    browser.find("#slider")?;
    Ok(())
}

#[test]
fn who_may_only_look_is_told_so_and_can_press_nothing_else() -> Result<()> {
    let seen = Seen::volume()?;
    let url = format!("{}/", seen.origin);
    let entry = seen.stage.server.run(&["page", "--role", "viewer", "--url", &url])?;
    seen.browser.run("sessionStorage.clear()")?;
    seen.browser.open("about:blank")?;
    seen.browser.open(entry.trim())?;
    let who = seen.browser.find("#who")?;
    ensure!(who.text()?.starts_with("viewer, token:page-2"), "{}", who.text()?);
    ensure!(!seen.browser.address()?.contains("enter"), "{}", seen.browser.address()?);
    seen.go("#/v/pg")?;
    seen.pick_the_mark()?;
    for id in ["revert", "clone", "mark", "pin"] {
        seen.browser.find(&format!("#{id}:disabled"))?;
    }
    seen.picture("viewer")?;
    // The tab leaves, and the address from its history lets in nobody.
    seen.browser.find("#leave")?.click()?;
    seen.browser.find("#token")?;
    ensure!(seen.stage.server.run(&["token", "list"])?.lines().count() <= 1, "it ended");
    seen.browser.open("about:blank")?;
    seen.browser.open(entry.trim())?;
    seen.browser.wait_for_text("it is good once, and for a minute")?;
    seen.picture("code-used")?;
    // An address that lets in, opened where the page is.
    let entry = seen.stage.server.run(&["page", "--role", "operator", "--url", &url])?;
    let (_, code) = entry.trim().split_once('#').unwrap_or_default();
    seen.browser.run(&format!("location.hash = '{code}'"))?;
    let who = seen.browser.find("#who")?;
    ensure!(who.text()?.starts_with("operator, token:page-2"), "{}", who.text()?);
    // A token that ends elsewhere: the tab says so, and asks no more.
    let tokens = seen.stage.server.run(&["token", "list", "--json"])?;
    let tokens: serde_json::Value = serde_json::from_str(&tokens)?;
    let name = tokens[0]["name"].as_str().unwrap_or_default();
    seen.stage.server.run(&["token", "revoke", name])?;
    seen.browser.wait_for_text("or is good no longer")?;
    seen.browser.open("about:blank")?;
    seen.browser.open(&seen.address_with_token()?)?;
    seen.go("#/v/pg")?;
    seen.pick_the_mark()?;
    seen.browser.find("#revert:enabled")?;
    seen.check_log()
}

#[test]
fn a_server_that_stops_and_comes_back_is_noticed_and_nothing_shown_is_taken_for_new() -> Result<()>
{
    let mut seen = Seen::volume()?;
    seen.stage.server.kill();
    seen.browser.wait_for_text("The server does not answer. What is shown is of")?;
    let contact = seen.browser.find("#contact")?;
    ensure!(contact.text()? == "no connection", "{}", contact.text()?);
    seen.browser.find("main.stale")?;
    seen.picture("no-connection")?;
    seen.stage.server.up()?;
    seen.browser.wait_for("the server is there again", || Ok(contact.text()? == "live"))?;
    seen.browser.find("main:not(.stale) #slider")?;
    seen.browser.wait_for("nothing of it any more", || {
        Ok(!seen.browser.text()?.contains("does not answer"))
    })
}

#[test]
fn a_moment_that_cannot_be_opened_offers_those_that_can() -> Result<()> {
    let seen = Seen::volume()?;
    seen.pick_the_mark()?;
    seen.pick("seq:999999")?;
    seen.browser.wait_for_text("is not written yet")?;
    seen.picture("outside-window")?;
    let oldest = seen.browser.find(".moment .trouble .acts button:first-child")?;
    ensure!(oldest.text()?.starts_with("Oldest: 20"), "{}", oldest.text()?);
    oldest.click()?;
    let slider = seen.browser.find("#slider")?;
    seen.browser.wait_for("the oldest moment", || {
        Ok(slider.attribute("aria-valuetext")?.ends_with(", seq 0"))
    })?;
    ensure!(!seen.browser.text()?.contains("is not written yet"), "the refusal is gone");
    seen.pick("nonsense:5")?;
    seen.browser.find(".moment .trouble")?;
    seen.pick("latest")?;
    seen.browser.wait_for("the present", || {
        Ok(slider.attribute("aria-valuetext")?.starts_with("the present"))
    })
}
