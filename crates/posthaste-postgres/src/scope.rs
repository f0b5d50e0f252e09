//! What a table that lacks a column cannot be asked for.

use posthaste_core::StoreError;
use posthaste_core::store::{Filter, Ordering, Scope, StoreErrorKind};

use crate::PostgresStore;

fn refused(message: String, remedy: &'static str) -> StoreError {
    StoreError {
        kind: StoreErrorKind::Other,
        message,
        remedy: Some(remedy),
        source: None,
    }
}

impl PostgresStore {
    /// Whether rows can be chosen by this scope. A table without namespaces is served as a whole.
    pub(crate) fn check_scope(&self, scope: &Scope) -> Result<(), StoreError> {
        let lacks = |role: &str| self.lacks(role);
        if !scope.topics.is_empty() && lacks("topic") {
            let message = format!("scope.topics: {}", self.no_column("topic"));
            return Err(refused(message, "leave scope.topics empty and route in the publisher"));
        }
        if scope.tenant.is_some() && lacks("tenant") {
            let message = format!("scope.tenant: {}", self.no_column("tenant"));
            return Err(refused(message, "leave scope.tenant out, or map a column"));
        }
        Ok(())
    }

    /// Whether the policy for dead heads can be told by topic.
    pub(crate) fn check_ordering(&self, ordering: &Ordering) -> Result<(), StoreError> {
        match ordering {
            Ordering::PerKey { except, .. } if !except.is_empty() && self.lacks("topic") => {
                let message = format!("the policy for dead heads: {}", self.no_column("topic"));
                Err(refused(message, "choose one policy for all topics"))
            }
            _ => Ok(()),
        }
    }

    /// Whether an operator's conditions can be applied.
    pub(crate) fn check_filter(&self, filter: &Filter) -> Result<(), StoreError> {
        for (role, asked) in [
            ("topic", filter.topic.is_some()),
            ("ordering_key", filter.ordering_key.is_some()),
            ("tenant", filter.tenant.is_some()),
        ] {
            if asked && self.lacks(role) {
                let message = format!("filter by {role}: {}", self.no_column(role));
                return Err(refused(message, "leave the condition out, or name rows by id"));
            }
        }
        Ok(())
    }

    fn lacks(&self, role: &str) -> bool {
        self.map.column(role).is_none()
    }

    fn no_column(&self, role: &str) -> String {
        format!("the table map `{}` has no column for {role}", self.map.name())
    }

    /// An answer to what only Posthaste's own tables can do.
    pub(crate) fn needs_own_tables(&self, what: &str) -> StoreError {
        refused(
            format!("{what}: the table map `{}` has no table for it", self.map.name()),
            "use Posthaste's own tables, or do without",
        )
    }
}
