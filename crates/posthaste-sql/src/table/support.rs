//! What a table map cannot be asked for, because its database or its table has no place for it.

use std::fmt::Display;

use super::{Database, Role, TableMap};
use posthaste_core::store::{Filter, KeyOrdering, Scope, StoreError};

fn refused(message: String, remedy: &'static str) -> StoreError {
    StoreError::unsupported(message, Some(remedy))
}

impl TableMap {
    /// Whether a database can serve this map at all. Every store asks when it is made.
    pub fn check_database(&self, database: Database) -> Result<(), StoreError> {
        match database.refuses(self.strategy()) {
            Some(remedy) => Err(self.not_served_by(database, remedy)),
            None => Ok(()),
        }
    }

    /// The answer where a database, or one of its stores, cannot serve this map.
    pub fn not_served_by(&self, database: Database, problem: impl Display) -> StoreError {
        let name = &self.name;
        StoreError::unsupported(
            format!("{} cannot serve the table map `{name}`: {problem}", database.product()),
            None,
        )
    }

    /// Whether rows can be chosen by this scope. A table without namespaces is served as a whole.
    pub fn check_scope(&self, scope: &Scope) -> Result<(), StoreError> {
        if !scope.topics.is_empty() && !self.has(Role::Topic) {
            let message = format!("scope.topics: {}", self.lacks(Role::Topic));
            return Err(refused(message, "leave scope.topics empty and route in the publisher"));
        }
        if scope.tenant.is_some() && !self.has(Role::Tenant) {
            let message = format!("scope.tenant: {}", self.lacks(Role::Tenant));
            return Err(refused(message, "leave scope.tenant out, or map a column"));
        }
        Ok(())
    }

    /// Whether the policy for dead heads can be told by topic.
    pub fn check_ordering(&self, ordering: &KeyOrdering) -> Result<(), StoreError> {
        match ordering {
            KeyOrdering::PerKey { except, .. } if !except.is_empty() && !self.has(Role::Topic) => {
                let message = format!("the policy for dead heads: {}", self.lacks(Role::Topic));
                Err(refused(message, "choose one policy for all topics"))
            }
            _ => Ok(()),
        }
    }

    /// Whether an operator's conditions can be applied.
    pub fn check_filter(&self, filter: &Filter) -> Result<(), StoreError> {
        for (role, asked) in [
            (Role::Topic, filter.topic.is_some()),
            (Role::OrderingKey, filter.ordering_key.is_some()),
            (Role::Tenant, filter.tenant.is_some()),
        ] {
            if asked && !self.has(role) {
                let message = format!("filter by {role}: {}", self.lacks(role));
                return Err(refused(message, "leave the condition out, or name rows by id"));
            }
        }
        Ok(())
    }

    /// The answer to what only Posthaste's own tables can do.
    pub fn needs_native_tables(&self, what: &str) -> StoreError {
        refused(
            format!("{what}: the table map `{}` has no table for it", self.name),
            "use Posthaste's own tables, or do without",
        )
    }

    fn lacks(&self, role: Role) -> String {
        format!("the table map `{}` has no column for {role}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::store::StoreErrorKind;

    use super::*;
    use crate::table::BuiltinMap;

    #[test]
    fn a_map_that_a_database_cannot_serve_is_refused_by_name() {
        let serves = |name: &str, database| BuiltinMap::find(name).unwrap().map().unwrap().check_database(database);
        for database in [Database::MySql, Database::Sqlite] {
            let error = serves("commerce", database).unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Unsupported);
            assert!(
                error
                    .to_string()
                    .contains("cannot serve the table map `commerce`: a log"),
                "{error}"
            );
        }
        assert!(serves("logistics", Database::Sqlite).is_err());
        assert!(serves("logistics", Database::MySql).is_ok() && serves("commerce", Database::Postgres).is_ok());
    }

    #[test]
    fn what_needs_a_column_that_is_not_there_is_refused_by_name() {
        let map = BuiltinMap::find("donation").unwrap().map().unwrap();
        assert!(map.check_scope(&Scope::default()).is_ok());
        let scope = Scope {
            topics: vec!["a".to_owned()],
            ..Scope::default()
        };
        let error = map.check_scope(&scope).unwrap_err().to_string();
        assert!(
            error.contains("scope.topics: the table map `donation` has no column for topic; leave"),
            "{error}"
        );
        let filter = Filter {
            tenant: Some("t".to_owned()),
            ..Filter::default()
        };
        assert!(map.check_filter(&filter).unwrap_err().to_string().contains("tenant"));
        let native = TableMap::with_prefix("p_").unwrap();
        assert!(native.check_scope(&scope).is_ok() && native.check_filter(&filter).is_ok());
    }
}
