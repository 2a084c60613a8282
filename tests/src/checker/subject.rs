//! A volume under test: what it must hold, and the moments of it that are recorded.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;

use super::link::Link;
use crate::http::{Http, escape};
use crate::image::Image;
use crate::nbd::Nbd;

/// Which writes the volume retains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retains {
    Everything,
    Intervals,
    OnDemand,
}

/// How far back moments that nothing pins can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// Beyond the end of the run.
    Long,
    /// Some seconds: after the shorter time nothing is promised, after the longer all is gone.
    Short,
}

/// The window of [`Window::Short`], as the server is told it, and how much of it we rely on.
pub(super) const SHORT_WINDOW: &str = "4s";
const SHORT_WINDOW_SURE: Duration = Duration::from_secs(2);

/// A recorded moment.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// Expressions that name it.
    pub names: Vec<String>,
    pub seq: u64,
    pub image: Image,
    /// When it was the present for the last time that we know of.
    recorded: Instant,
}

/// How the names of pinned marks begin.
pub(super) const PINNED_MARK: &str = "mark:pinned-";

/// A view that stays open while the volume goes on.
pub(super) struct Held {
    pub link: Nbd,
    pub name: String,
    pub image: Image,
}

pub(super) struct Subject {
    pub name: String,
    pub retains: Retains,
    /// How far back moments can be opened that nothing pins.
    pub window: Window,
    /// It has a write-back cache: a kill takes what was not flushed.
    pub is_cached: bool,
    /// The present.
    pub image: Image,
    pub moments: Vec<Moment>,
    pub links: Vec<Link>,
    pub held: Vec<Held>,
    /// The moment before the last revert.
    pub undo: Option<(u64, Image)>,
    /// Unpinned and pinned marks, by name.
    pub marks: Vec<String>,
    pub versions: Vec<u64>,
    /// Times are named only after a pause, or they would name a neighbour.
    clock_pause: Duration,
}

impl Subject {
    pub fn new(name: &str, retains: Retains, window: Window, image: Image) -> Subject {
        Subject {
            name: name.to_owned(),
            retains,
            window,
            is_cached: false,
            image,
            moments: Vec::new(),
            links: Vec::new(),
            held: Vec::new(),
            undo: None,
            marks: Vec::new(),
            versions: Vec::new(),
            clock_pause: Duration::from_millis(2),
        }
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/volumes/{}{rest}", self.name)
    }

    pub fn latest_seq(&self, http: &Http) -> Result<u64> {
        number(&http.get(&self.path(""))?["latest"]["seq"])
    }

    /// Asks whether it has a write-back cache.
    pub fn note_cache(&mut self, http: &Http) -> Result<()> {
        self.is_cached = http.get(&self.path(""))?["cache"].is_object();
        Ok(())
    }

    pub fn resolve(&self, http: &Http, moment: &str) -> Result<(u64, bool)> {
        let answer = http.get(&self.path(&format!("/resolve?at={}", escape(moment))))?;
        let exact = answer["exact"].as_bool().context("exact is a boolean")?;
        Ok((number(&answer["seq"])?, exact))
    }

    /// Records the present by its seq, and by the time too if asked for. No request is in flight.
    pub fn record(&mut self, http: &Http, by_time: bool) -> Result<()> {
        let seq = self.latest_seq(http)?;
        let mut names = vec![format!("seq:{seq}")];
        if by_time {
            thread::sleep(self.clock_pause);
            names.push(Timestamp::now().to_string());
            thread::sleep(self.clock_pause);
        }
        self.remember(seq, names)
    }

    /// Records the present under these names.
    pub fn remember(&mut self, seq: u64, names: Vec<String>) -> Result<()> {
        if let Some(moment) = self.moments.iter_mut().find(|moment| moment.seq == seq) {
            ensure!(
                (0..self.image.size().div_ceil(4096).max(1))
                    .all(|page| moment.image.page_equals(&self.image, page)),
                "{}: seq {seq} stands for two different contents",
                self.name
            );
            moment.names.extend(names);
            moment.recorded = Instant::now();
            moment.names.sort();
            moment.names.dedup();
        } else {
            let image = self.image.clone();
            self.moments.push(Moment { names, seq, image, recorded: Instant::now() });
        }
        Ok(())
    }

    /// Whether the moment must open with exactly its bytes.
    pub fn keeps(&self, moment: &Moment) -> bool {
        !self.sure_names(moment).is_empty()
    }

    /// The names under which the moment must open: all of them in the window, then pinned ones.
    pub fn sure_names<'a>(&self, moment: &'a Moment) -> Vec<&'a str> {
        let is_young = self.window == Window::Long || moment.recorded.elapsed() < SHORT_WINDOW_SURE;
        let has_all = self.retains == Retains::Everything && is_young;
        let is_sure =
            |name: &&str| has_all || name.starts_with("v:") || name.starts_with(PINNED_MARK);
        moment.names.iter().map(String::as_str).filter(is_sure).collect()
    }

    /// Whether every moment that was ever recorded must open.
    pub fn keeps_all(&self) -> bool {
        self.retains == Retains::Everything && self.window == Window::Long
    }

    /// Takes a name away from every moment.
    pub fn forget(&mut self, name: &str) {
        for moment in &mut self.moments {
            moment.names.retain(|n| n != name);
        }
        self.moments.retain(|moment| !moment.names.is_empty());
    }

    pub fn drop_links(&mut self) {
        self.links.clear();
        self.held.clear();
    }
}

/// A whole number of an answer.
pub(super) fn number(value: &Value) -> Result<u64> {
    value.as_u64().with_context(|| format!("a whole number, not {value}"))
}
