//! Which relays are asked for: `[[intercept]]` of the configuration file, and `--intercept`.

use std::fmt;
use std::str::FromStr;

use intercept::PrimaryAddress;
use serde::Deserialize;
use units::VolumeName;
use volume::Architecture;

use crate::StartError;
use crate::listening::Listening;

/// A relay before an NFS server, as it is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterceptSettings {
    /// Where clients mount instead of the server: `ADDRESS:PORT`.
    pub listen: String,
    /// `append`, `overwrite` or `inline`.
    pub form: String,
    /// The share that follows, or that is served.
    pub share: String,
    /// The server's export, `HOST:PORT:/EXPORT` or `HOST:PORT,MOUNTPORT:/EXPORT`; none of `inline`.
    #[serde(default)]
    pub primary: Option<String>,
}

/// The forms of UCDP in which a relay stands between clients and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A: the share appends what the server did (`logging`).
    Append,
    /// O: the share copies what it overwrites (`checkpointing`).
    Overwrite,
    /// I: the relay stands before the share itself (`redirect`).
    Inline,
}

impl Form {
    const ALL: [Form; 3] = [Form::Append, Form::Overwrite, Form::Inline];

    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Form::Append => "append",
            Form::Overwrite => "overwrite",
            Form::Inline => "inline",
        }
    }

    /// The architecture of a share that is made for it.
    pub(crate) fn architecture(self) -> Architecture {
        match self {
            Form::Append => Architecture::Logging,
            Form::Overwrite => Architecture::Checkpointing,
            Form::Inline => Architecture::Redirect,
        }
    }
}

/// A relay that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intercept {
    pub(crate) listening: Listening,
    pub(crate) form: Form,
    pub(crate) share: String,
    /// None of `inline`: it is this server.
    pub(crate) primary: Option<PrimaryAddress>,
}

impl fmt::Display for Intercept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, share {}", self.form.name(), self.share)?;
        self.primary.as_ref().map_or(Ok(()), |primary| write!(f, ", primary {primary}"))
    }
}

impl FromStr for InterceptSettings {
    type Err = StartError;

    /// From `LISTEN,FORM,SHARE[,PRIMARY]`.
    fn from_str(text: &str) -> Result<InterceptSettings, StartError> {
        let mut parts = text.splitn(4, ',').map(str::to_owned);
        let (Some(listen), Some(form), Some(share)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(StartError::setting(
                format!("`{text}` is not LISTEN,FORM,SHARE,PRIMARY"),
                "such as 127.0.0.1:20500,append,home,10.0.0.5:2049:/srv/home",
            ));
        };
        Ok(InterceptSettings { listen, form, share, primary: parts.next() })
    }
}

impl Intercept {
    /// The relay of settings, whose address is read already.
    ///
    /// # Errors
    /// If something is no form or no export; two relays with one share are refused elsewhere.
    pub(crate) fn new(
        settings: &InterceptSettings,
        listening: Listening,
    ) -> Result<Intercept, StartError> {
        let wrong =
            |what: String, hint: &str| StartError::setting(format!("intercept: {what}"), hint);
        let form = Form::ALL.into_iter().find(|form| form.name() == settings.form);
        let form = form.ok_or_else(|| {
            wrong(format!("`{}` is no form", settings.form), "give append, overwrite or inline")
        })?;
        let primary = settings.primary.as_ref().map(|text| {
            let wrong = |form| wrong(format!("`{text}` is no server's export"), form);
            text.parse::<PrimaryAddress>().map_err(wrong)
        });
        let primary = primary.transpose()?;
        if primary.is_some() == (form == Form::Inline) {
            return Err(match form {
                Form::Inline => wrong(
                    "inline has no primary".to_owned(),
                    "it stands before the share of this server: leave it out",
                ),
                _ => wrong(
                    format!("{} needs a primary", form.name()),
                    "give the server's export, HOST:PORT:/EXPORT: primary = \"...\", or the last \
                     part of --intercept",
                ),
            });
        }
        if let Err(error) = VolumeName::check(&settings.share) {
            return Err(wrong(error.message, error.hint.as_deref().unwrap_or_default()));
        }
        Ok(Intercept { listening, form, share: settings.share.clone(), primary })
    }
}

#[cfg(test)]
mod tests {
    use super::{Form, Intercept, InterceptSettings};

    fn read(text: &str) -> Result<Intercept, String> {
        let settings = text.parse::<InterceptSettings>();
        let listening = crate::Listening::default();
        let intercept = settings.and_then(|settings| Intercept::new(&settings, listening));
        intercept.map_err(|error| error.to_string())
    }

    #[test]
    fn relays_are_read_or_refused_by_what_is_wrong() {
        let found = read("127.0.0.1:0,append,home,nas:2049,20048:/srv/home").expect("a relay");
        assert_eq!((found.form, &*found.share), (Form::Append, "home"));
        assert_eq!(found.to_string(), "append, share home, primary nas:2049,20048:/srv/home");
        let inline = read("127.0.0.1:0,inline,home").expect("a relay");
        assert_eq!(inline.to_string(), "inline, share home");
        for (text, what) in [
            ("127.0.0.1:0,append", "is not LISTEN,FORM,SHARE,PRIMARY"),
            ("127.0.0.1:0,append,../home,nas:2049:/x", "does not begin with a letter or digit"),
            ("127.0.0.1:0,copy,home,nas:2049:/x", "`copy` is no form"),
            ("127.0.0.1:0,append,home", "append needs a primary"),
            ("127.0.0.1:0,inline,home,nas:2049:/x", "inline has no primary"),
            ("127.0.0.1:0,overwrite,home,nas:/x", "`nas:/x` is no server's export"),
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.contains(what), "{refused}");
        }
    }
}
