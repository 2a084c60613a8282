//! `hindsight watch`: has volumes watched for data that is written over with what looks random, or
//! with zeros, and tells the alarms.

use api::{ExitCode, SensitivityName, SetWatch, Watch, WatchAlarm};
use clap::Subcommand;
use serde_json::json;
use units::Sensitivity;

use crate::output::{Align, human, pairs, table};
use crate::session::{Session, say};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Have a volume watched: an alarm marks and pins the moment before it began, and changes
    /// nothing else.
    Set {
        /// Name of the volume.
        name: String,
        /// How soon there is an alarm: low, normal or high [default: as it was, or normal].
        #[arg(long, value_parser = sensitivity)]
        sensitivity: Option<Sensitivity>,
    },
    /// Show what the last look found, and the alarms.
    Show {
        /// Name of the volume.
        name: String,
    },
    /// Have a volume watched no more; marks of its alarms stay.
    Remove {
        /// Name of the volume.
        name: String,
    },
}

fn sensitivity(text: &str) -> Result<Sensitivity, String> {
    let found = Sensitivity::ALL.into_iter().find(|one| one.name() == text);
    found.ok_or_else(|| "there is low, normal, high".to_owned())
}

pub fn run(session: &Session, verb: &Verb) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    match verb {
        Verb::Set { name, sensitivity } => {
            let normal = SensitivityName(Sensitivity::Normal);
            let sensitivity = match sensitivity {
                Some(how) => SensitivityName(*how),
                None => client.volume(name)?.watch.unwrap_or(normal),
            };
            let body = SetWatch { sensitivity };
            session.answer(&client.set_watch(name, &body)?, show)?;
        }
        Verb::Show { name } => session.answer(&client.watch(name)?, show)?,
        Verb::Remove { name } => {
            client.remove_watch(name)?;
            say(&format!("watch of {name}: removed; marks of its alarms stay"));
            session.answer(&json!({"volume": name, "removed": true}), |_| String::new())?;
        }
    }
    Ok(ExitCode::Done)
}

fn show(watch: &Watch) -> String {
    let looked = watch.looked.map_or("not yet".to_owned(), |looked| looked.to_string());
    let shown = pairs(&[
        ("sensitivity", watch.sensitivity.to_string()),
        ("last look", looked),
        ("written over", human(watch.written_over_bytes)),
        ("scrambled", human(watch.scrambled_bytes)),
        ("wiped", human(watch.wiped_bytes)),
        ("alarms", watch.alarms.len().to_string()),
    ]);
    if watch.alarms.is_empty() {
        return shown;
    }
    let heading = [
        ("GIVEN", Align::Left),
        ("KIND", Align::Left),
        ("SIZE", Align::Right),
        ("MARK", Align::Left),
        ("SEQ", Align::Right),
        ("HELD", Align::Left),
    ];
    let row = |alarm: &WatchAlarm| {
        vec![
            alarm.given.to_string(),
            alarm.kind.clone(),
            human(alarm.bytes),
            alarm.mark.clone(),
            alarm.seq.to_string(),
            if alarm.held { "yes" } else { "no" }.to_owned(),
        ]
    };
    format!("{shown}\n{}", table(&heading, &watch.alarms.iter().map(row).collect::<Vec<_>>()))
}
