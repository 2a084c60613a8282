//! `hindsight watch`: has volumes watched for data that is written over with what looks random, or
//! with zeros, and tells the alarms.

use api::{ExitCode, SensitivityName, SetWatch, Watch};
use clap::Subcommand;
use serde_json::json;
use units::Sensitivity;

use crate::output::{Table, human, pairs};
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
    let alarms = Table::of(&watch.alarms)
        .left("GIVEN", |alarm| alarm.given.to_string())
        .left("KIND", |alarm| alarm.kind.clone())
        .right("SIZE", |alarm| human(alarm.bytes))
        .left("MARK", |alarm| alarm.mark.clone())
        .right("SEQ", |alarm| alarm.seq.to_string())
        .left("HELD", |alarm| if alarm.held { "yes" } else { "no" }.to_owned())
        .text();
    format!("{shown}\n{alarms}")
}
