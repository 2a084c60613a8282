//! What a user does on the page: revert and undo, mark, pin, clone, version, schedules, scrub.

use anyhow::{Context, Result, ensure};
use hindsight_tests::browser::key;
use hindsight_tests::client::Client;
use serde_json::json;

use super::{Seen, write};

#[test]
fn a_volume_is_reverted_and_undone_by_two_clicks_each() -> Result<()> {
    let seen = Seen::volume()?;
    ensure!(seen.byte(64 << 10)? == 9, "the present has nines");
    seen.pick_the_mark()?;
    seen.browser.find("#revert")?.click()?;
    seen.browser.wait_for_text("320 KiB of 64 MiB")?;
    let dialog = seen.browser.find("dialog")?;
    ensure!(dialog.role()? == "dialog" && dialog.label()? == "Revert pg?", "{}", dialog.label()?);
    ensure!(dialog.text()?.contains("hindsight revert pg --to seq:"), "{}", dialog.text()?);
    seen.picture("revert")?;
    seen.browser.find("#do-revert:enabled")?.click()?;
    seen.browser.wait_for_text("320 KiB changed")?;
    seen.picture("reverted")?;
    ensure!(seen.byte(64 << 10)? == 7, "it is as it was at the mark");
    seen.browser.button("Undo")?.click()?;
    seen.browser.wait_for_text("320 KiB changed back")?;
    ensure!(seen.byte(64 << 10)? == 9, "the revert is undone");
    // Later the event itself has the way back.
    seen.browser.find("#tab-events")?.click()?;
    seen.browser.find("#panel td button:not(.link)")?.click()?;
    seen.browser.wait_for_text("320 KiB of 64 MiB")?;
    seen.check_log()
}

#[test]
fn a_volume_with_clients_is_not_reverted_unawares() -> Result<()> {
    let seen = Seen::volume()?;
    let mut disk = seen.stage.server.connect("pg")?;
    seen.browser.wait_for_text("1 client")?;
    seen.pick_the_mark()?;
    seen.browser.find("#revert")?.click()?;
    seen.browser.wait_for_text("320 KiB of 64 MiB")?;
    seen.browser.wait_for_text("1 client is attached")?;
    ensure!(!seen.browser.find("#do-revert")?.is_enabled()?, "it is off");
    seen.picture("revert-with-clients")?;
    ensure!(disk.read(64 << 10, 1)? == [9], "the client is served");
    seen.browser.find("dialog input[type=checkbox]")?.click()?;
    seen.browser.find("#do-revert:enabled")?.click()?;
    seen.browser.wait_for_text("320 KiB changed")?;
    ensure!(disk.read(64 << 10, 1).is_err(), "it was disconnected");
    ensure!(seen.byte(64 << 10)? == 7, "reverted");
    Ok(())
}

#[test]
fn every_action_is_reached_by_keys_alone() -> Result<()> {
    let seen = Seen::volume()?;
    let browser = &seen.browser;
    let has_focus = |selector: &str| -> Result<bool> {
        Ok(browser.run(&format!("return document.activeElement.matches({selector:?})"))? == true)
    };
    let mut turns = 0;
    while !has_focus("#slider")? {
        browser.press(&[key::TAB])?;
        turns += 1;
        ensure!(turns < 40, "the slider is a stop of the Tab key");
    }
    browser.press(&[key::PAGE_UP])?;
    browser.wait_for("an event before", || Ok(!has_focus("body")? && !picked_is_now(&seen)?))?;
    ensure!(has_focus("#slider")?, "it stays there");
    // Its keys: mark, compare, copy is for the clipboard, go to the box, list of keys, revert.
    browser.press(&["m"])?;
    browser.find("dialog #dialog-name")?;
    browser.press(&["b", "y", "k", "e", "y", key::ENTER])?;
    browser.wait_for_text("Marked bykey.")?;
    let http = seen.stage.server.http();
    let marks = http.get("/api/v1/volumes/pg/marks")?;
    ensure!(
        marks.as_array().is_some_and(|all| all.iter().any(|m| m["name"] == "bykey")),
        "{marks}"
    );
    browser.wait_for("the dialog is gone", || has_focus("#slider"))?;
    browser.press(&["a"])?;
    browser.wait_for_text("Clear A")?;
    browser.press(&[key::END])?;
    browser.wait_for("the present", || picked_is_now(&seen))?;
    browser.wait_for_text("320 KiB differ")?;
    browser.press(&["?"])?;
    browser.wait_for_text("the event before, and after")?;
    seen.picture("keys")?;
    browser.press(&[key::ESCAPE])?;
    browser.wait_for("the dialog is gone", || has_focus("#slider"))?;
    browser.press(&["/"])?;
    browser.wait_for("the box", || has_focus("#moment-text"))?;
    browser.press(&["v", ":", "0", key::ENTER])?;
    browser.wait_for("the version", || Ok(!picked_is_now(&seen)?))?;
    // From the box on, all buttons follow one another.
    for button in ["#revert", "#clone", "#mark", "#pin", "#compare", "#tab-changes"] {
        let mut turns = 0;
        while !has_focus(button)? {
            browser.press(&[key::TAB])?;
            turns += 1;
            ensure!(turns < 40, "{button} is a stop of the Tab key");
        }
    }
    seen.check_log()
}

fn picked_is_now(seen: &Seen) -> Result<bool> {
    Ok(seen.browser.find("#picked")?.text()?.contains("the present"))
}

#[test]
fn moments_are_pinned_captured_cloned_and_versions_deleted_after_their_name_is_typed() -> Result<()>
{
    let seen = Seen::volume()?;
    let (browser, http) = (&seen.browser, seen.stage.server.http());
    browser.find("#version")?.click()?;
    browser.find("#dialog-name")?.enter("by hand")?;
    browser.find("#do-action")?.click()?;
    browser.wait_for_text("Version 1 is captured, crash-consistent.")?;
    seen.pick_the_mark()?;
    browser.find("#pin")?.click()?;
    browser.find("#dialog-name")?.enter("kept")?;
    browser.find("#do-action")?.click()?;
    browser.wait_for_text("Marked kept, and pinned.")?;
    let marks = http.get("/api/v1/volumes/pg/marks")?;
    let kept = marks.as_array().and_then(|all| all.iter().find(|mark| mark["name"] == "kept"));
    ensure!(kept.context("a mark")?["pinned"] == true, "{marks}");
    browser.find("#clone")?.click()?;
    browser.find("#dialog-name")?.replace("pg-then")?;
    browser.find("#do-action")?.click()?;
    browser.wait_for_text("pg-then is there")?;
    let mut clone = seen.stage.server.connect("pg-then")?;
    ensure!(clone.read(64 << 10, 1)? == [7], "of that moment");
    clone.disconnect()?;
    browser.find("#tab-marks")?.click()?;
    browser.wait_for_text("not pinned")?;
    browser.find("#tab-versions")?.click()?;
    browser.find("[aria-label='Delete version 1']")?.click()?;
    let ask = browser.find("dialog #do-action")?;
    ensure!(!ask.is_enabled()?, "nothing was typed");
    browser.find("#dialog-name")?.enter("pg@v:1")?;
    seen.picture("delete-version")?;
    ask.click()?;
    browser.wait_for("version 1 is gone", || {
        Ok(http.call("GET", "/api/v1/volumes/pg/versions/1", None)?.status == 404)
    })?;
    seen.check_log()
}

#[test]
fn a_schedule_is_looked_at_before_it_is_saved_and_a_scrub_is_begun() -> Result<()> {
    let seen = Seen::volume()?;
    let (browser, http) = (&seen.browser, seen.stage.server.http());
    seen.go("#/schedules")?;
    browser.button("Schedule for pg")?.click()?;
    browser.button("Preview")?.click()?;
    browser.wait_for_text("None of the versions there are would go.")?;
    ensure!(http.call("GET", "/api/v1/volumes/pg/schedule", None)?.status == 404, "only looked at");
    seen.picture("schedule")?;
    browser.button("Save")?.click()?;
    browser.wait_for_text("keeps 24 hourly, 7 daily")?;
    ensure!(http.get("/api/v1/volumes/pg/schedule")?["every"] == "1h");
    seen.picture("schedules")?;
    seen.go("#/pool")?;
    browser.find("#scrub")?.click()?;
    browser.wait_for("a scrub", || Ok(!http.get("/api/v1/pool")?["scrub"].is_null()))?;
    browser.wait_for_text("0 lost")?;
    seen.picture("pool")?;
    seen.go("#/jobs")?;
    browser.wait_for_text("scrub")?;
    seen.picture("jobs")?;
    seen.go("#/audit")?;
    browser.wait_for_text("volume-create")?;
    seen.picture("audit")?;
    seen.check_log()
}

#[test]
fn a_write_by_another_client_is_soon_on_the_line() -> Result<()> {
    let seen = Seen::volume()?;
    let seq = |seen: &Seen| -> Result<u64> {
        let body = seen.stage.server.http().get("/api/v1/volumes/pg")?;
        body["latest"]["seq"].as_u64().context("a seq")
    };
    let before = seq(&seen)?;
    let mut disk = seen.stage.server.connect("pg")?;
    disk.demand(&write(8 << 20, 1 << 20, 1))?;
    disk.disconnect()?;
    let after = seq(&seen)?;
    ensure!(after > before, "written");
    let slider = seen.browser.find("#slider")?;
    let told = format!("seq {after}");
    seen.browser.wait_for("the present moves", || {
        Ok(slider.attribute("aria-valuetext")?.ends_with(&told))
    })?;
    seen.browser.wait_for_text(&format!("seq {after}, the present"))?;
    let shown = seen.stage.server.http().expect(
        "POST",
        "/api/v1/volumes/pg/marks",
        Some(&json!({"name": "later"})),
    )?;
    ensure!(shown["seq"] == after, "{shown}");
    seen.browser.find("#tab-events")?.click()?;
    seen.browser.wait_for_text("mark later")
}
