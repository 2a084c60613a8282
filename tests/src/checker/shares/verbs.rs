//! Versions, marks, reverts, clones and deletions of shares.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::super::subject::number;
use super::Shares;
use super::client::handle;
use super::model::ROOT;
use super::subject::Subject;
use crate::http::escape;
use crate::nfs::{Call, status};

impl Shares {
    pub(super) fn create_version(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        let subject = &mut self.subjects[at];
        subject.check(&mut self.eyes)?;
        let made = http.expect("POST", &subject.path("/versions"), Some(&json!({})))?;
        let (version, seq) = (number(&made["number"])?, number(&made["seq"])?);
        subject.versions.push(version);
        subject.remember(seq, vec![format!("v:{version}")]);
        let name = subject.name.clone();
        self.note(format!("{name}: version {version} is seq {seq}"));
        Ok(())
    }

    pub(super) fn delete_version(&mut self, at: usize) -> Result<()> {
        let (http, subject) = (self.server.http(), &mut self.subjects[at]);
        if subject.versions.is_empty() {
            return Ok(());
        }
        let version = subject.versions.swap_remove(self.random.index(subject.versions.len()));
        http.expect("DELETE", &subject.path(&format!("/versions/{version}")), None)?;
        subject.forget(&format!("v:{version}"));
        let export = format!("{}@v:{version}", subject.name);
        subject.check_refused(&export)?;
        self.note(format!("delete {export}"));
        Ok(())
    }

    pub(super) fn create_mark(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        let (fresh, of_past) = (self.fresh(), self.random.chance(40));
        let subject = &mut self.subjects[at];
        let pin = !subject.keeps_all || self.random.chance(50);
        let mark = format!("{}-{fresh}", if pin { "pinned" } else { "loose" });
        let name = format!("mark:{mark}");
        let chosen = subject.some_moment(&mut self.random).filter(|_| of_past);
        let mut body = json!({ "name": mark, "pin": pin });
        match &chosen {
            Some((moment, _)) => body["at"] = json!(moment),
            None => subject.check(&mut self.eyes)?,
        }
        let made = http.expect("POST", &subject.path("/marks"), Some(&body))?;
        let seq = number(&made["seq"])?;
        if let Some((_, moment)) = &chosen {
            ensure!(seq == moment.seq, "mark {mark} is seq {seq}, not {}", moment.seq);
        }
        subject.remember(seq, vec![name]);
        subject.marks.push(mark);
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
        subject.check_refused(&export)?;
        self.note(format!("delete {export}"));
        Ok(())
    }

    /// Reverts to a recorded moment, or undoes the last revert.
    pub(super) fn revert(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        let subject = &mut self.subjects[at];
        subject.check(&mut self.eyes)?;
        let undo = subject.undo.take().filter(|_| subject.keeps_all && self.random.chance(50));
        let (to, tree) = match undo {
            Some((seq, tree)) => (format!("seq:{seq}"), tree),
            None => match subject.some_moment(&mut self.random) {
                Some((name, moment)) => (name, moment.tree),
                None => return Ok(()),
            },
        };
        let before = subject.latest_seq(&http)?;
        let body = json!({ "to": to });
        let made = http.expect("POST", &subject.path("/revert"), Some(&body))?;
        ensure!(number(&made["from"]["seq"])? == before, "reverted from {made}, not {before}");
        let old = std::mem::replace(&mut subject.tree, tree);
        subject.undo = Some((before, old));
        subject.renew_verifier(true)?;
        let name = subject.name.clone();
        self.note(format!("{name}: revert to {to} from seq {before}"));
        self.counts.reverts += 1;
        self.record(at).context("after a revert")?;
        self.subjects[at].begin_anew();
        Ok(())
    }

    pub(super) fn clone_share(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        let name = format!("clone-{}", self.fresh());
        let subject = &mut self.subjects[at];
        let mut body = json!({ "name": name });
        let chosen = subject.some_moment(&mut self.random).filter(|_| self.random.chance(60));
        let tree = match chosen {
            Some((moment, found)) => {
                body["at"] = json!(moment);
                found.tree
            }
            None => {
                subject.check(&mut self.eyes)?;
                subject.tree.clone()
            }
        };
        http.expect("POST", &subject.path("/clones"), Some(&body))?;
        let users: Vec<_> = subject
            .clients
            .iter()
            .map(|client| (client.user, client.top, client.ids.clone()))
            .collect();
        let links = (&self.address, &mut self.links);
        let mut clone = Subject::new(&name, subject.keeps_all, links, (tree, &users));
        clone.boss.ids = subject.boss.ids.clone();
        let from = subject.name.clone();
        self.note(format!("clone {from} {body}"));
        clone.check(&mut self.eyes).context("a clone")?;
        clone.renew_verifier(false)?;
        clone.record(&http)?;
        self.subjects.push(clone);
        self.counts.clones += 1;
        Ok(())
    }

    pub(super) fn delete_share(&mut self, at: usize) -> Result<()> {
        let http = self.server.http();
        let mut subject = self.subjects.swap_remove(at);
        http.expect("DELETE", &subject.share_path("?force=true"), None)?;
        self.note(format!("delete {}", subject.name));
        subject.check_refused(&subject.name.clone())?;
        let object = handle(&subject.known, ROOT)?;
        let status = subject.boss.link.call(&Call::Getattr { object })?.status;
        ensure!(status == status::STALE, "a handle of a deleted share gives {status}");
        for client in &subject.clients {
            self.counts.sent_again += client.link.sent_again;
            self.counts.writes += client.writes;
        }
        Ok(())
    }
}

impl Subject {
    /// An export must not be there.
    fn check_refused(&mut self, export: &str) -> Result<()> {
        let path = format!("/{export}").into_bytes();
        let status = self.boss.link.call(&Call::Mount { path })?.status;
        ensure!(status == status::NOENT, "MOUNT of {export}, which is gone, gives {status}");
        Ok(())
    }
}
