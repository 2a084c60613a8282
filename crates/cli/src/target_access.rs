//! Who may log in to an iSCSI target, as it is asked for and told.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::{ChangeTarget, ChapCredential, IscsiAccess};
use clap::Args;

use crate::failure::Failure;

/// The access to a target.
#[derive(Debug, Args)]
pub struct AccessArgs {
    /// The name by which initiators prove themselves (CHAP); none asks for no proof any more.
    #[arg(long, value_name = "NAME|none")]
    chap_user: Option<String>,
    /// A file with the secret of that name: 12 to 16 characters.
    #[arg(long, value_name = "FILE")]
    chap_secret_file: Option<PathBuf>,
    /// The name by which the target proves itself to initiators that ask for it, or none.
    #[arg(long, value_name = "NAME|none")]
    mutual_user: Option<String>,
    /// A file with the secret of that name, which is another than that of initiators.
    #[arg(long, value_name = "FILE")]
    mutual_secret_file: Option<PathBuf>,
    /// The name of an initiator that may log in (several times for several), or all.
    #[arg(long, value_name = "IQN|all")]
    allow: Vec<String>,
}

impl AccessArgs {
    /// The change that they ask for.
    pub fn change(&self) -> anyhow::Result<ChangeTarget> {
        let allow = match &self.allow[..] {
            [] => None,
            [all] if all == "all" => Some(Vec::new()),
            some if some.iter().any(|name| name == "all") => {
                return Err(Failure::usage("--allow all stands alone").into());
            }
            some => Some(some.to_vec()),
        };
        let (chap, mutual) = (&self.chap_secret_file, &self.mutual_secret_file);
        Ok(ChangeTarget {
            chap: credential("chap", self.chap_user.as_deref(), chap.as_deref())?,
            mutual: credential("mutual", self.mutual_user.as_deref(), mutual.as_deref())?,
            allow,
        })
    }
}

/// A name and its secret, which comes from a file: arguments are seen by everybody.
fn credential(
    which: &str,
    user: Option<&str>,
    file: Option<&Path>,
) -> anyhow::Result<Option<Option<ChapCredential>>> {
    match (user, file) {
        (None, None) => Ok(None),
        (Some("none"), None) => Ok(Some(None)),
        (Some(user), Some(file)) if user != "none" => {
            let read = fs::read_to_string(file);
            let text = read.with_context(|| format!("{} cannot be read", file.display()))?;
            let secret = text.trim_end_matches(['\r', '\n']).to_owned();
            Ok(Some(Some(ChapCredential { user: user.to_owned(), secret })))
        }
        _ => {
            let what = format!("--{which}-user NAME and --{which}-secret-file go together");
            Err(Failure::usage(what).into())
        }
    }
}

/// Who may log in.
pub fn told(access: &IscsiAccess) -> Vec<(&'static str, String)> {
    let user = |user: &Option<String>| user.clone().unwrap_or_else(|| "none".to_owned());
    let allow = if access.allow.is_empty() { vec!["all".to_owned()] } else { access.allow.clone() };
    let mut told = vec![("chap", user(&access.chap_user)), ("mutual", user(&access.mutual_user))];
    told.extend(allow.into_iter().map(|initiator| ("allowed", initiator)));
    told
}
