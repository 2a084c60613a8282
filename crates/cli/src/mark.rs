//! `hindsight mark`.

use api::{CreateMark, ExitCode, ListQuery, Mark, Page, Would};
use clap::Subcommand;
use serde_json::json;
use units::Granularity;

use crate::failure::Failure;
use crate::moment;
use crate::output::Table;
use crate::session::{Session, say};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Give a moment a name.
    Create {
        /// Name of the volume.
        name: String,
        /// Name of the mark.
        mark: String,
        /// The moment [default: the present].
        #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
        at: Option<String>,
        /// Keep the moment however old it gets.
        #[arg(long)]
        pin: bool,
    },
    /// List the marks of a volume.
    #[command(visible_alias = "ls")]
    List {
        /// Name of the volume.
        name: String,
    },
    /// Delete a mark.
    #[command(visible_alias = "rm")]
    Delete {
        /// Name of the volume.
        name: String,
        /// Name of the mark.
        mark: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Create { name, mark, at, pin } => {
            let at = at.as_deref().map(moment::read).transpose()?.map(|m| m.to_string());
            let client = session.client()?;
            let made = client.create_mark(&name, &CreateMark { name: mark, at, pin })?;
            session.answer(&made, |m| list(std::slice::from_ref(m)))?;
            let keeps_all = client
                .volume(&name)
                .is_ok_and(|volume| volume.granularity == Granularity::EveryWrite);
            if !made.pinned && !keeps_all {
                say(&format!(
                    "{name} does not keep every write: its mark {} may name nothing that can be \
                     opened after the next one; --pin keeps its moment",
                    made.name
                ));
            }
        }
        Verb::List { name } => session.answer(&all(session, &name)?, |m| list(m))?,
        Verb::Delete { name, mark, dry_run } => delete(session, &name, &mark, dry_run)?,
    }
    Ok(ExitCode::Done)
}

fn all(session: &Session, name: &str) -> anyhow::Result<Vec<Mark>> {
    let client = session.client()?;
    Ok(Page::all(|next| client.marks(name, &ListQuery { next, limit: None }))?)
}

fn delete(session: &Session, name: &str, mark: &str, dry_run: bool) -> anyhow::Result<()> {
    let answer = json!({"volume": name, "mark": mark, "deleted": !dry_run});
    let marks = all(session, name)?;
    let Some(found) = marks.iter().find(|m| m.name == mark) else {
        let message = format!("{name} has no mark {mark}");
        return Err(Failure { code: ExitCode::NotFound, message, hint: None }.into());
    };
    if dry_run {
        let pinned = if found.pinned { ", which pins its moment" } else { "" };
        let text = format!("mark {mark} of {name}{pinned}, would be deleted");
        let would = Would::new("delete", format!("{name}@mark:{mark}"), text);
        return session.would(&[would], &answer, |_| String::new());
    }
    if found.pinned {
        session.confirm(&format!("mark {mark} of {name} pins its moment"))?;
    }
    session.client()?.delete_mark(name, mark)?;
    say(&format!("mark {mark} of {name}: deleted"));
    session.answer(&answer, |_| String::new())
}

fn list(marks: &[Mark]) -> String {
    Table::of(marks)
        .left("NAME", |m| m.name.clone())
        .left("TIME", |m| m.time.to_string())
        .right("SEQ", |m| m.seq.to_string())
        .left("PINNED", |m| if m.pinned { "yes" } else { "no" }.to_owned())
        .left("CREATED", |m| m.created.to_string())
        .text()
}
