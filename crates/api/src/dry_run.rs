//! The answers of dry runs: one shape, whatever the verb.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One thing that a dry run would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Would {
    /// `change`, `create`, `delete`, `overwrite`, `prune`, `remove`, `rename`, `resize`, `revert` or
    /// `stay`.
    #[schema(example = "delete")]
    pub action: String,
    /// To what, as a command names it: `pg`, `pg@v:3`, `pg@mark:before-upgrade`, `group db`,
    /// `home /docs/letter.txt`.
    #[schema(example = "pg@v:3")]
    pub target: String,
    /// The same as a sentence, with what follows from it.
    pub text: String,
}

impl Would {
    /// One thing that would be done.
    #[must_use]
    pub fn new(action: &str, target: impl Into<String>, text: impl Into<String>) -> Would {
        Would { action: action.to_owned(), target: target.into(), text: text.into() }
    }
}
