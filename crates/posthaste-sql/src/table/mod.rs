//! Table maps: which tables and columns play which role, and which labels the states have.
//!
//! Stores take every name from a map. Posthaste's own schema is the map that ships as default; an existing table is
//! another map, written as TOML (see [`mod@file`]), and may lack a role: statements mark the parts that need it (see
//! [`crate::template`]), and the way rows are claimed follows from the roles that are there (see [`Strategy`]).

mod builtin;
pub mod catalogue;
pub mod check;
mod database;
pub mod file;
mod identifier;
pub mod infer;
mod kind;
mod native;
mod part;
mod purpose;
mod role;
mod row;
mod sql_row;
mod state_label;
mod strategy;
mod support;
#[cfg(test)]
mod tests;
mod topic;
mod trial;
mod validate;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use posthaste_core::integrity::{ContentHash, HashRecipe};
use posthaste_core::lifecycle::{LeaseToken, State};
use posthaste_core::message::Message;
use posthaste_core::store::WorkerId;

pub use builtin::{BUILTIN_MAPS, BuiltinMap};
pub use catalogue::{Catalogue, LiveColumn, LiveIndex, LiveTable, Shape};
pub use check::{Finding, Severity};
pub use database::Database;
pub use file::MapError;
pub use identifier::{BadIdentifier, Identifier, TableName};
pub use kind::Kind;
pub use part::{Part, Property};
pub use purpose::Table;
pub use role::Role;
pub use sql_row::{Held, SqlRow};
pub use state_label::StateLabel;
pub use strategy::Strategy;
pub use topic::TopicRule;

/// How rows live in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Each row carries its own state.
    #[default]
    Queue,
    /// Rows are written once and never changed; a cursor says how far they were read.
    Log,
}

/// What the column of attempts counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counts {
    /// Every try, the first included.
    #[default]
    Attempts,
    /// Tries after the first one, when they are scheduled.
    Retries,
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: Identifier,
    /// How it keeps its value.
    pub kind: Kind,
    /// Most characters it holds, if that is to be respected.
    pub max: Option<usize>,
    /// Whether the database gives the value at insert.
    pub generated: bool,
}

/// The description of one outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMap {
    name: String,
    layout: Layout,
    schema: Option<Identifier>,
    tables: BTreeMap<Table, TableName>,
    columns: BTreeMap<Role, Column>,
    side_columns: BTreeMap<(Table, Role), Column>,
    labels: BTreeMap<&'static str, StateLabel>,
    order: Vec<Role>,
    topic: TopicRule,
    constants: BTreeMap<Role, String>,
    hash: HashRecipe,
    counts: Counts,
    split_index: bool,
    trusted_ids: bool,
    zone: String,
    policy: serde_json::Map<String, serde_json::Value>,
}

impl TableMap {
    /// Its name, for logs and messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How rows live in it.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The schema of Posthaste's own tables, if one was chosen.
    pub fn schema(&self) -> Option<&Identifier> {
        self.schema.as_ref()
    }

    /// The name of a table, if there is one.
    pub fn table(&self, table: Table) -> Option<&TableName> {
        self.tables.get(&table)
    }

    /// All tables that it names, by purpose.
    pub fn tables(&self) -> impl Iterator<Item = (Table, &TableName)> {
        self.tables.iter().map(|(table, name)| (*table, name))
    }

    /// Whether it describes Posthaste's own tables, which migrations make; others are their owner's.
    pub fn is_native(&self) -> bool {
        self.has(Table::Migrations)
    }

    /// The column of a role, if the table has one.
    pub fn column(&self, role: Role) -> Option<&Column> {
        self.columns.get(&role)
    }

    /// The column of a role in a table beside the outbox.
    pub fn side_column(&self, table: Table, role: Role) -> Option<&Column> {
        self.side_columns.get(&(table, role))
    }

    /// All columns of a table beside the outbox, by role.
    pub fn side_columns(&self, table: Table) -> impl Iterator<Item = (Role, &Column)> {
        let columns = self.side_columns.iter();
        columns
            .filter(move |((of, _), _)| *of == table)
            .map(|((_, role), column)| (*role, column))
    }

    /// All columns of a table that are mapped, by role.
    pub fn columns_of(&self, table: Table) -> Vec<(Role, &Column)> {
        match table {
            Table::Outbox => self.columns().collect(),
            _ => self.side_columns(table).collect(),
        }
    }

    /// The columns that are mapped, by role.
    pub fn columns(&self) -> impl Iterator<Item = (Role, &Column)> {
        self.columns.iter().map(|(role, column)| (*role, column))
    }

    /// The roles by which rows are ordered.
    pub fn order(&self) -> &[Role] {
        &self.order
    }

    /// How topics are found.
    pub fn topic_rule(&self) -> &TopicRule {
        &self.topic
    }

    /// The value of a role that is the same for all rows.
    pub fn constant(&self, role: Role) -> Option<&str> {
        self.constants.get(&role).map(String::as_str)
    }

    /// What the column of attempts counts.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The zone of times that are kept without one: `UTC`, an offset such as `+09:00`, or a name.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// The hash of a message by the table's recipe.
    pub fn content_hash(&self, message: &Message) -> ContentHash {
        self.hash.hash(message)
    }

    /// What the hash is made over.
    pub fn hash_recipe(&self) -> &HashRecipe {
        &self.hash
    }

    /// The relay's settings that suit this table, as a part of its configuration.
    pub fn policy(&self) -> &serde_json::Map<String, serde_json::Value> {
        &self.policy
    }

    /// The table's label for a state, by its name in statements: a state, or `waiting` for rows between two tries.
    pub fn label(&self, state: &str) -> Option<&StateLabel> {
        self.labels.get(state)
    }

    /// The labels of rows that may be claimed.
    pub fn claimable_labels(&self) -> Vec<&StateLabel> {
        let mut labels: Vec<&StateLabel> = ["pending", "waiting"]
            .iter()
            .filter_map(|state| self.labels.get(state))
            .collect();
        labels.dedup();
        labels
    }

    /// The state that the table has this label for.
    pub fn state(&self, label: &str) -> Option<State> {
        let is = |state: &str| self.labels.get(state).is_some_and(|known| known.is(label));
        let state = State::ALL.into_iter().find(|state| is(state.as_str()));
        state.or_else(|| is("waiting").then_some(State::Pending))
    }

    /// What is written into the row as the proof of one claim. A text also says whose it is, so that an operator sees it;
    /// statements compare its last 36 characters.
    pub fn fence(&self, worker: WorkerId, token: LeaseToken) -> String {
        let token: Uuid = token.as_uuid();
        match self.column(Role::LeaseToken).map(|column| column.kind) {
            Some(Kind::Text) => format!("{}/{token}", worker.as_uuid()),
            _ => token.to_string(),
        }
    }

    /// An error as the table can keep it: no NUL, and no longer than the column.
    pub fn error_text(&self, error: &str) -> String {
        let max = self
            .column(Role::LastError)
            .or_else(|| self.side_column(Table::Failed, Role::LastError))
            .and_then(|column| column.max)
            .unwrap_or(usize::MAX);
        error.replace('\0', " ").chars().take(max).collect()
    }

    /// How many attempts a row's own limit allows.
    pub fn row_limit(&self, limit: i64) -> u32 {
        let limit = u32::try_from(limit).unwrap_or(0);
        match self.counts {
            Counts::Attempts => limit,
            Counts::Retries => limit.saturating_add(1),
        }
    }

    /// The same map for a table that has no column for `role`.
    #[must_use]
    pub fn without(mut self, role: Role) -> Self {
        self.columns.remove(&role);
        self
    }
}
