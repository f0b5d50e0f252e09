//! What a table may have or lack, as statements and stores ask for it.

use super::{Counts, Role, Table, TableMap};

/// Something that a table may have or lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A column of the outbox.
    Role(Role),
    /// A table.
    Table(Table),
    /// A column of a table beside the outbox.
    SideColumn(Table, Role),
    /// Something about it that is no column.
    Property(Property),
}

/// Something about a table that is neither a table nor a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Its attempts count tries after the first one.
    Retries,
    /// Its fresh and waiting rows have an index each.
    SplitIndex,
    /// Its owner vouches for the order of its ids.
    TrustedIds,
    /// The time of the insert comes first in its order.
    OrderedByTime,
    /// The database gives its ids.
    GeneratedId,
}

impl Property {
    const ALL: [Self; 5] = [
        Self::Retries,
        Self::SplitIndex,
        Self::TrustedIds,
        Self::OrderedByTime,
        Self::GeneratedId,
    ];

    /// Its name in statements.
    const fn name(self) -> &'static str {
        match self {
            Self::Retries => "retries",
            Self::SplitIndex => "split_index",
            Self::TrustedIds => "trusted_ids",
            Self::OrderedByTime => "ordered_by_time",
            Self::GeneratedId => "generated_id",
        }
    }
}

impl Part {
    /// What has this name in statements, such as `tenant`, `dedupe`, `failed/last_error` or `retries`.
    pub fn named(name: &str) -> Option<Self> {
        if let Some((table, role)) = name.split_once('/') {
            let (table, role) = (Table::named(table)?, Role::of_any_table(role)?);
            return table.side_roles().contains(&role).then_some((table, role).into());
        }
        let property = Property::ALL.into_iter().find(|property| property.name() == name);
        let role = || Role::in_statements(name).map(Self::Role);
        let table = || Table::named(name).map(Self::Table);
        property.map(Self::Property).or_else(role).or_else(table)
    }

    /// All names but those of columns in tables beside the outbox.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        let roles = Role::of_outbox().iter().map(|role| role.name());
        let tables = Table::ALL.into_iter().map(Table::name);
        roles.chain(tables).chain(Property::ALL.into_iter().map(Property::name))
    }
}

impl From<Role> for Part {
    fn from(role: Role) -> Self {
        Self::Role(role)
    }
}

impl From<Table> for Part {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl From<(Table, Role)> for Part {
    fn from((table, role): (Table, Role)) -> Self {
        Self::SideColumn(table, role)
    }
}

impl From<Property> for Part {
    fn from(property: Property) -> Self {
        Self::Property(property)
    }
}

impl TableMap {
    /// Whether there is a column for a role, a table, a column of a table beside the outbox, or a property.
    pub fn has(&self, part: impl Into<Part>) -> bool {
        match part.into() {
            Part::Role(role) => self.columns.contains_key(&role),
            Part::Table(table) => self.tables.contains_key(&table),
            Part::SideColumn(table, role) => self.side_columns.contains_key(&(table, role)),
            Part::Property(Property::Retries) => self.counts == Counts::Retries,
            Part::Property(Property::SplitIndex) => self.split_index,
            Part::Property(Property::TrustedIds) => self.trusted_ids,
            Part::Property(Property::OrderedByTime) => self.order.first() == Some(&Role::CreatedAt),
            Part::Property(Property::GeneratedId) => self.column(Role::Id).is_some_and(|id| id.generated),
        }
    }
}
