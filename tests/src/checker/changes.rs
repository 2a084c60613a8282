//! Versions, marks, reverts, clones, sizes and deletions of a volume under test.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::past::{check_changed, check_refused};
use super::subject::{Moment, Retains, Subject, number};
use super::world::{ARCHITECTURES, World};
use crate::http::escape;
use crate::random::Random;

impl World {
    pub(super) fn create_version(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        let subject = &mut self.subjects[at];
        let body = json!({ "label": format!("label {}", subject.versions.len()) });
        let made = http.expect("POST", &subject.path("/versions"), Some(&body))?;
        let (version, seq) = (number(&made["number"])?, number(&made["seq"])?);
        let expected = subject.versions.last().map_or(0, |last| last + 1);
        ensure!(version >= expected, "version {version} was used before");
        subject.versions.push(version);
        subject.remember(seq, vec![format!("v:{version}")])?;
        let name = subject.name.clone();
        self.note(format!("{name}: version {version} is seq {seq}"));
        Ok(())
    }

    pub(super) fn delete_version(&mut self, at: usize) -> Result<()> {
        let (http, subject) = (self.server.http(), &mut self.subjects[at]);
        if subject.versions.is_empty() {
            return Ok(());
        }
        let version = subject.versions[self.random.index(subject.versions.len())];
        let name = format!("v:{version}");
        // The last number stays in the list, so that a number used twice is noticed.
        if !subject.moments.iter().any(|moment| moment.names.contains(&name)) {
            return Ok(());
        }
        http.expect("DELETE", &subject.path(&format!("/versions/{version}")), None)?;
        subject.forget(&name);
        let export = format!("{}@{name}", subject.name);
        self.note(format!("delete {export}"));
        check_refused(&self.server, &export)
    }

    /// Asks for a version to be compacted or uncompacted, which goes on behind whatever comes next.
    pub(super) fn compact_version(&mut self, at: usize) -> Result<()> {
        let (http, subject) = (self.server.http(), &self.subjects[at]);
        let is_kept = |version: &&u64| {
            let name = format!("v:{version}");
            subject.moments.iter().any(|moment| moment.names.contains(&name))
        };
        let kept: Vec<u64> = subject.versions.iter().filter(is_kept).copied().collect();
        if kept.is_empty() {
            return Ok(());
        }
        let version = kept[self.random.index(kept.len())];
        let verb = ["compact", "uncompact"][self.random.index(2)];
        let job =
            http.expect("POST", &subject.path(&format!("/versions/{version}/{verb}")), None)?;
        ensure!(job["kind"] == verb, "asked to {verb}, and got {job}");
        let name = subject.name.clone();
        self.note(format!("{verb} {name}@v:{version}"));
        Ok(())
    }

    pub(super) fn create_mark(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        let (number_of, of_past) = (self.fresh(), self.random.chance(40));
        let subject = &mut self.subjects[at];
        let pin = subject.retains != Retains::Everything || self.random.chance(50);
        let mark = format!("{}-{number_of}", if pin { "pinned" } else { "loose" });
        let past: Vec<Moment> =
            subject.moments.iter().filter(|m| subject.keeps(m)).cloned().collect();
        let mut body = json!({ "name": mark, "pin": pin });
        let chosen = (of_past && !past.is_empty()).then(|| &past[self.random.index(past.len())]);
        if let Some(moment) = chosen {
            body["at"] = json!(a_sure_name(subject, moment, &mut self.random)?);
        }
        let made = http.expect("POST", &subject.path("/marks"), Some(&body))?;
        let seq = number(&made["seq"])?;
        subject.marks.push(mark.clone());
        match chosen {
            Some(moment) => {
                ensure!(seq == moment.seq, "mark {mark} is seq {seq}, not {}", moment.seq);
                let name = format!("mark:{mark}");
                let kept = subject.moments.iter_mut().find(|m| m.seq == seq);
                kept.context("a recorded moment")?.names.push(name);
            }
            None => subject.remember(seq, vec![format!("mark:{mark}")])?,
        }
        let name = subject.name.clone();
        self.note(format!("{name}: mark {body} is seq {seq}"));
        Ok(())
    }

    pub(super) fn delete_mark(&mut self, at: usize) -> Result<()> {
        let (http, subject) = (self.server.http(), &mut self.subjects[at]);
        if subject.marks.is_empty() {
            return Ok(());
        }
        let mark = subject.marks.swap_remove(self.random.index(subject.marks.len()));
        http.expect("DELETE", &subject.path(&format!("/marks?name={}", escape(&mark))), None)?;
        subject.forget(&format!("mark:{mark}"));
        let export = format!("{}@mark:{mark}", subject.name);
        self.note(format!("delete {export}"));
        check_refused(&self.server, &export)
    }

    /// Reverts to a recorded moment, or undoes the last revert.
    pub(super) fn revert(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        let subject = &mut self.subjects[at];
        let undo = subject.undo.take();
        let undo = undo.filter(|_| subject.keeps_all());
        let (to, seq, image) = match undo.filter(|_| self.random.chance(50)) {
            Some((seq, image)) => (format!("seq:{seq}"), seq, image),
            None => {
                let kept: Vec<&Moment> =
                    subject.moments.iter().filter(|m| subject.keeps(m)).collect();
                let Some(moment) = (!kept.is_empty()).then(|| kept[self.random.index(kept.len())])
                else {
                    return Ok(());
                };
                let name = a_sure_name(subject, moment, &mut self.random)?;
                (name, moment.seq, moment.image.clone())
            }
        };
        let is_attached = !subject.links.is_empty();
        let force = is_attached && self.random.chance(50);
        if is_attached && !force {
            let answer = http.call("POST", &subject.path("/revert"), Some(&json!({ "to": to })))?;
            ensure!(answer.status == 409, "revert under clients: {}", answer.status);
            subject.links.clear();
            wait_for_no_clients(&http, subject)?;
        }
        let before = subject.latest_seq(&http)?;
        let dry = json!({ "to": to, "dry_run": true, "force": force });
        let dry = http.expect("POST", &subject.path("/revert"), Some(&dry))?;
        ensure!(subject.latest_seq(&http)? == before, "a dry run changed the volume");
        let body = json!({ "to": to, "force": force });
        let made = http.expect("POST", &subject.path("/revert"), Some(&body))?;
        ensure!(dry["changed_bytes"] == made["changed_bytes"], "a dry run foretold other bytes");
        ensure!(number(&made["from"]["seq"])? == before, "reverted from {made}, not {before}");
        ensure!(number(&made["to"]["seq"])? == seq, "reverted to {made}, not {seq}");
        check_changed(&made, &subject.image, &image)?;
        let old = std::mem::replace(&mut subject.image, image);
        subject.undo = Some((before, old));
        subject.links.clear();
        let name = subject.name.clone();
        self.note(format!("{name}: revert to {to} (seq {seq}) from {before}, force {force}"));
        self.counts.reverts += 1;
        self.subjects[at].record(&http, true)?;
        self.check_present(at, true)
    }

    pub(super) fn clone_volume(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        let name = format!("clone-{}", self.fresh());
        let subject = &self.subjects[at];
        let kept: Vec<&Moment> = subject.moments.iter().filter(|m| subject.keeps(m)).collect();
        let mut body = json!({ "name": name });
        let image = if kept.is_empty() || self.random.chance(30) {
            subject.image.clone()
        } else {
            let moment = kept[self.random.index(kept.len())];
            body["at"] = json!(a_sure_name(subject, moment, &mut self.random)?);
            moment.image.clone()
        };
        http.expect("POST", &subject.path("/clones"), Some(&body))?;
        let mut clone = Subject::new(&name, subject.retains, subject.window, image);
        clone.note_cache(&http)?;
        if clone.retains == Retains::Everything {
            clone.record(&http, true)?;
        }
        let from = subject.name.clone();
        self.note(format!("clone {from} {body}"));
        self.subjects.push(clone);
        self.counts.clones += 1;
        self.check_present(self.subjects.len() - 1, true)
    }

    pub(super) fn resize(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        let longest = self.options.volume_bytes_max;
        let unit = [512, 4096][self.random.index(2)];
        let size = self.random.between(64 << 10, longest) / unit * unit;
        let subject = &mut self.subjects[at];
        subject.drop_links();
        wait_for_no_clients(&http, subject)?;
        http.expect("PATCH", &subject.path(""), Some(&json!({ "size": size })))?;
        let old = subject.image.size();
        subject.image.resize(size);
        if subject.retains == Retains::Everything {
            subject.record(&http, true)?;
        }
        let name = subject.name.clone();
        self.note(format!("{name}: resize from {old} to {size}"));
        self.check_present(at, true)
    }

    /// Changes the architecture, under whoever is attached and whatever view is held.
    pub(super) fn convert(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        let to = ARCHITECTURES[self.random.index(ARCHITECTURES.len())];
        let subject = &mut self.subjects[at];
        let before = subject.latest_seq(&http)?;
        let made = http.expect("PATCH", &subject.path(""), Some(&json!({ "architecture": to })))?;
        ensure!(made["architecture"] == to, "{} instead of {to}", made["architecture"]);
        ensure!(subject.latest_seq(&http)? == before, "a conversion is no moment");
        subject.note_cache(&http)?;
        let name = subject.name.clone();
        self.note(format!("{name}: convert to {to}"));
        self.check_present(at, true)
    }

    pub(super) fn delete_volume(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        let mut subject = self.subjects.swap_remove(at);
        subject.held.clear();
        if !subject.links.is_empty() {
            let answer = http.call("DELETE", &subject.path(""), None)?;
            ensure!(answer.status == 409, "delete under clients: {}", answer.status);
        }
        let force = !subject.links.is_empty() && self.random.chance(50);
        if !force {
            subject.drop_links();
            wait_for_no_clients(&http, &subject)?;
        }
        // Versions and pinned marks are in the way of a delete that is not forced.
        let mut target = subject.path(if force { "?force=true" } else { "" });
        let mut answer = http.call("DELETE", &target, None)?;
        if answer.status == 409 && !force {
            target = subject.path("?force=true");
            answer = http.call("DELETE", &target, None)?;
        }
        ensure!(answer.status == 204, "DELETE {target}: {}", answer.status);
        self.note(format!("delete volume {}, force {force}", subject.name));
        check_refused(&self.server, &subject.name)?;
        check_refused(&self.server, &format!("{}@latest", subject.name))?;
        let gone = http.call("GET", &subject.path(""), None)?;
        ensure!(gone.status == 404, "a deleted volume gives {}", gone.status);
        Ok(())
    }
}

/// One of the names under which a moment must open. It was just found to be kept; half of its
/// window is left, so this holds long enough.
pub(super) fn a_sure_name(
    subject: &Subject,
    moment: &Moment,
    random: &mut Random,
) -> Result<String> {
    let names = subject.sure_names(moment);
    ensure!(!names.is_empty(), "a moment aged while a step chose it");
    Ok(names[random.index(names.len())].to_owned())
}

/// A closed connection is noticed by the server in its own time.
fn wait_for_no_clients(http: &crate::http::Http, subject: &Subject) -> Result<()> {
    crate::disk::wait_until("the server notices that clients have gone", || {
        Ok(http.get(&subject.path(""))?["clients"].as_u64().unwrap_or(0) == 0)
    })
}
