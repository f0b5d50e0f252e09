//! What a table may have or lack, as statements and stores ask for it.

use super::file::SIDE_TABLES;
use super::own::TABLES;
use super::{Counts, ROLES, TableMap};

/// Something that a table may have or lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A column of the outbox.
    Role(&'static str),
    /// A table, by its purpose.
    Table(&'static str),
    /// A column of a table beside the outbox.
    SideColumn {
        /// The table's purpose.
        table: &'static str,
        /// The column's role.
        role: &'static str,
    },
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
    /// All of them, by their names in statements.
    const ALL: [(&'static str, Self); 5] = [
        ("retries", Self::Retries),
        ("split_index", Self::SplitIndex),
        ("trusted_ids", Self::TrustedIds),
        ("ordered_by_time", Self::OrderedByTime),
        ("generated_id", Self::GeneratedId),
    ];
}

impl Part {
    /// What has this name in statements, such as `tenant`, `dedupe`, `failed/last_error` or `retries`.
    pub fn named(name: &str) -> Option<Self> {
        if let Some((table, role)) = name.split_once('/') {
            let (table, roles) = SIDE_TABLES.into_iter().find(|(purpose, _)| *purpose == table)?;
            let role = roles.iter().find(|known| **known == role)?;
            return Some(Self::SideColumn { table, role });
        }
        let property = Property::ALL.into_iter().find(|(known, _)| *known == name);
        let role = || Some(Self::Role(ROLES.iter().find(|role| role.name == name)?.name));
        let table = || Some(Self::Table(purposes().find(|purpose| *purpose == name)?));
        let property = property.map(|(_, property)| Self::Property(property));
        property.or_else(role).or_else(table)
    }

    /// All names but those of columns in tables beside the outbox.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        let properties = Property::ALL.into_iter().map(|(name, _)| name);
        ROLES.iter().map(|role| role.name).chain(purposes()).chain(properties)
    }
}

/// What tables are for.
fn purposes() -> impl Iterator<Item = &'static str> {
    let own = TABLES.into_iter().map(|(purpose, _)| purpose);
    own.chain(SIDE_TABLES.into_iter().map(|(purpose, _)| purpose))
}

impl TableMap {
    /// Whether the table has it.
    pub fn has_part(&self, part: Part) -> bool {
        match part {
            Part::Role(role) => self.columns.contains_key(role),
            Part::Table(purpose) => self.tables.contains_key(purpose),
            Part::SideColumn { table, role } => self.side_column(table, role).is_some(),
            Part::Property(Property::Retries) => self.counts == Counts::Retries,
            Part::Property(Property::SplitIndex) => self.split_index,
            Part::Property(Property::TrustedIds) => self.trusted_ids,
            Part::Property(Property::OrderedByTime) => self.order.first() == Some(&"created_at"),
            Part::Property(Property::GeneratedId) => self.column("id").is_some_and(|id| id.generated),
        }
    }

    /// Whether something is there, by its name in statements; see [`Part::named`].
    pub fn has(&self, name: &str) -> bool {
        let part = Part::named(name);
        debug_assert!(part.is_some(), "there is no `{name}` that a table could have");
        part.is_some_and(|part| self.has_part(part))
    }
}
