//! Roles: what a caller may ask for. They are no ladder: a reader sees data and protects nothing, a
//! keeper protects data that it never sees.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Malformed;

/// The rights of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sees volumes, history, space, jobs; no data.
    Viewer,
    /// And reads data, of the present and the past.
    Reader,
    /// Sees as a viewer, and makes versions, marks and pins; undoes none of it.
    Keeper,
    /// Does as reader and keeper, and writes: clones, reverts, makes larger.
    Operator,
    /// All.
    Admin,
}

crate::names!(
    Display Role: Viewer "viewer",
    Reader "reader",
    Keeper "keeper",
    Operator "operator",
    Admin "admin"
);

impl Role {
    /// Whether it may do all that another may.
    #[must_use]
    pub fn includes(self, other: Role) -> bool {
        match self {
            Role::Admin => true,
            Role::Operator => other != Role::Admin,
            Role::Reader | Role::Keeper => other == self || other == Role::Viewer,
            Role::Viewer => other == Role::Viewer,
        }
    }
}

impl FromStr for Role {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Role, Malformed> {
        let found = Role::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| {
            let shown: String = text.chars().take(32).collect();
            let hint = "there is viewer, reader, keeper, operator, admin";
            Malformed::new(format!("`{shown}` is no role"), hint)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Role;

    #[test]
    fn roles_are_read_as_they_are_printed() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
            assert_eq!(serde_json::to_value(role).expect("text"), role.name());
        }
        assert!("root".parse::<Role>().is_err() && "Admin".parse::<Role>().is_err());
    }

    #[test]
    fn each_role_includes_itself_and_a_viewer_and_only_an_admin_includes_all() {
        let included = |role: Role| -> Vec<&str> {
            Role::ALL.into_iter().filter(|&other| role.includes(other)).map(Role::name).collect()
        };
        assert_eq!(included(Role::Viewer), ["viewer"]);
        assert_eq!(included(Role::Reader), ["viewer", "reader"]);
        assert_eq!(included(Role::Keeper), ["viewer", "keeper"]);
        assert_eq!(included(Role::Operator), ["viewer", "reader", "keeper", "operator"]);
        assert_eq!(included(Role::Admin).len(), 5);
    }
}
