//! What a part of a statement depends on.

use super::{TemplateError, no_such_part};
use crate::table::{Part, TableMap};

/// What stands behind `if`. Taken apart when the statement is built, so that a misspelt name is an error: a part that silently
/// vanished could be the predicate that keeps tenants apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
    All(Vec<Part>),
    Any(Vec<Part>),
}

impl Condition {
    pub(super) fn parse(condition: &str) -> Result<Self, TemplateError> {
        let parts = |separator: &str| {
            let names = condition.split(separator).map(str::trim);
            names.map(|name| part(condition, name)).collect::<Result<Vec<_>, _>>()
        };
        // Both at once are an unknown name, with blanks in it.
        Ok(if condition.contains(" or ") {
            Self::Any(parts(" or ")?)
        } else {
            Self::All(parts(" and ")?)
        })
    }

    pub(super) fn holds(&self, map: &TableMap) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| map.has(*part)),
            Self::Any(parts) => parts.iter().any(|part| map.has(*part)),
        }
    }
}

fn part(condition: &str, name: &str) -> Result<Part, TemplateError> {
    Part::named(name).ok_or_else(|| no_such_part(&format!("/*if {condition}*/"), name))
}
