//! The SQL that turns a live table into what its map says.

use crate::table::{
    Column, Database, Identifier, Kind, LiveColumn, LiveTable, Role, Shape, StateLabel, Table, TableMap, TableName,
};

pub(super) struct DdlFix<'a> {
    pub(super) map: &'a TableMap,
    pub(super) database: Database,
}

impl DdlFix<'_> {
    fn table(&self, name: &TableName) -> String {
        name.quoted(self.database.quote())
    }

    fn quoted(&self, name: &str) -> String {
        let quote = self.database.quote();
        format!("{quote}{}{quote}", name.replace(quote, &format!("{quote}{quote}")))
    }

    fn list(&self, names: &[&str]) -> String {
        let quoted: Vec<_> = names.iter().map(|name| self.quoted(name)).collect();
        quoted.join(", ")
    }

    /// A name that says what the index is for, within what every database can name.
    fn index(&self, table: &LiveTable, purpose: &str) -> String {
        let mut name: String = table.name.name.as_str().chars().take(40).collect();
        while name.len() > 50 {
            name.pop();
        }
        let is_taken = |name: &String| table.indexes.iter().any(|index| index.name == *name);
        let mut names = (1..).map(|n| match n {
            1 => format!("{name}_{purpose}"),
            n => format!("{name}_{purpose}_{n}"),
        });
        let free = names.find(|name| !is_taken(name)).unwrap_or_default();
        self.quoted(&free)
    }

    /// Nothing for a table whose columns the map does not say.
    pub(super) fn create_table(&self, table: Table) -> Option<String> {
        let name = self.map.table(table)?;
        let mut columns = self.map.columns_of(table);
        let place = |role: Role| Role::of_outbox().iter().position(|known| *known == role);
        columns.sort_by_key(|(role, _)| place(*role).unwrap_or(usize::MAX));
        let mut seen: Vec<&Identifier> = Vec::new();
        let mut lines = Vec::new();
        for (role, column) in columns {
            // One column may play two roles.
            if !seen.contains(&&column.name) {
                seen.push(&column.name);
                lines.push(format!("    {}", self.definition(table, role, column)));
            }
        }
        if lines.is_empty() {
            return None;
        }
        Some(format!(
            "create table {} (\n{}\n);",
            self.table(name),
            lines.join(",\n")
        ))
    }

    /// What a queue lacks for leases, and the lines of the map that go with it.
    pub(super) fn lease_columns(&self, live: &[LiveTable]) -> Option<String> {
        let table = live
            .iter()
            .find(|live| Some(&live.name) == self.map.table(Table::Outbox))?;
        if matches!(table.shape, Shape::Other(_)) {
            return None;
        }
        let time = if self.database == Database::Sqlite {
            Kind::EpochMs
        } else {
            Kind::Timestamptz
        };
        let mut lines = Vec::new();
        let mut map = vec!["-- and in the map, under [columns] and [states]:".to_owned()];
        for (role, kind) in [
            (Role::LockedBy, Kind::Text),
            (Role::LockedUntil, time),
            (Role::Attempts, Kind::Integer),
        ] {
            if self.map.has(role) {
                continue;
            }
            let column = Column {
                name: Identifier::new(role.name()).ok()?,
                kind,
                max: None,
                generated: false,
            };
            if table.column(role.name()).is_none() {
                let definition_role = if role == Role::LockedBy { Role::LeaseToken } else { role };
                lines.extend(self.add_column(Table::Outbox, definition_role, &column, table));
            }
            map.push(format!(
                "--   {role} = {{ column = \"{role}\", kind = \"{}\" }}",
                kind.as_str()
            ));
        }
        map.push("--   processing = …, a label that the table has for rows being delivered".to_owned());
        lines.extend(map);
        Some(lines.join("\n"))
    }

    /// Nothing where the database cannot add such a column to a table that is there.
    pub(super) fn add_column(&self, of: Table, role: Role, column: &Column, live: &LiveTable) -> Option<String> {
        let (table, name) = (self.table(&live.name), self.quoted(column.name.as_str()));
        let definition = self.definition(of, role, column);
        if is_numbered(&definition) {
            let definition = match self.database {
                Database::Postgres => definition.replace(" primary key", ""),
                // Its numbers must have a key from the start.
                Database::MySql if live.primary_key().is_empty() => definition,
                Database::MySql => definition.replace(" primary key", " unique"),
                Database::Sqlite => return None,
            };
            return Some(format!("alter table {table} add column {definition};"));
        }
        // Rows that are there have nothing in it yet.
        let definition = definition.replace(" primary key", "").replace(" not null", " null");
        let definition = if definition.contains(" default ") {
            definition.replace(" null", "")
        } else {
            definition
        };
        if let (Database::Sqlite, Some((definition, now))) = (self.database, definition.split_once(" default (")) {
            // Where rows are, the default of a new column has to be a constant.
            return Some(format!(
                "alter table {table} add column {definition} null;\nupdate {table} set {name} = ({now};"
            ));
        }
        Some(format!("alter table {table} add column {definition};"))
    }

    fn definition(&self, table: Table, role: Role, column: &Column) -> String {
        let name = self.quoted(column.name.as_str());
        let is_copy = matches!(table, Table::Outbox | Table::DeadLetter);
        if role == Role::Id && (column.generated || !is_copy) {
            let generated = match self.database {
                Database::Postgres => "bigint generated by default as identity primary key",
                Database::Sqlite => "integer primary key autoincrement",
                Database::MySql => "bigint auto_increment primary key",
            };
            return format!("{name} {generated}");
        }
        let kind = self.column_type(role, column);
        let rest = match role {
            Role::Id if table == Table::Outbox => " primary key".to_owned(),
            Role::Payload | Role::Status | Role::Position => " not null".to_owned(),
            Role::Attempts | Role::Version => " not null default 0".to_owned(),
            Role::CreatedAt | Role::NextAttemptAt => self
                .database
                .now(column.kind)
                .map_or_else(|| " null".to_owned(), |now| format!(" not null default {now}")),
            _ => " null".to_owned(),
        };
        format!("{name} {kind}{rest}")
    }

    fn column_type(&self, role: Role, column: &Column) -> String {
        let length = match (role, column.kind) {
            (Role::LeaseToken, Kind::Text) => Some(column.max.unwrap_or(100)),
            (Role::Status, Kind::Text) => Some(column.max.unwrap_or(50)),
            (Role::Payload | Role::LastError | Role::Headers, Kind::Text) if column.max.is_none() => {
                return self.database.long_text().to_owned();
            }
            _ => column.max,
        };
        self.database.column_type(column.kind, length)
    }

    pub(super) fn lengthen(
        &self,
        table: &LiveTable,
        column: &Column,
        live: &LiveColumn,
        length: usize,
    ) -> Option<String> {
        let (table, name) = (self.table(&table.name), self.quoted(column.name.as_str()));
        match self.database {
            Database::Postgres => Some(format!(
                "alter table {table} alter column {name} type varchar({length});"
            )),
            Database::MySql => {
                let definition = Self::lengthened(column, live, length)?;
                Some(format!("alter table {table} modify {name} {definition};"))
            }
            Database::Sqlite => None,
        }
    }

    /// The definition of a column that has been lengthened, where one is known.
    pub(super) fn lengthened(column: &Column, live: &LiveColumn, length: usize) -> Option<String> {
        let (_, rest) = live.definition.as_deref()?.split_once(')')?;
        let kind = match column.kind {
            Kind::Bytes | Kind::UuidBytes => "varbinary",
            _ => "varchar",
        };
        Some(format!("{kind}({length}){rest}"))
    }

    /// Nothing where the primary key needs it, and on SQLite, which wants a new table.
    pub(super) fn drop_not_null(&self, table: &LiveTable, column: &LiveColumn) -> Option<String> {
        if table.primary_key().contains(&column.name) {
            return None;
        }
        let (table, name) = (self.table(&table.name), self.quoted(&column.name));
        match self.database {
            Database::Postgres => Some(format!("alter table {table} alter column {name} drop not null;")),
            Database::MySql => {
                let definition = column.definition.as_deref()?.replacen(" NOT NULL", " NULL", 1);
                Some(format!("alter table {table} modify {name} {definition};"))
            }
            Database::Sqlite => None,
        }
    }

    /// The id as primary key, with columns that have to be in it.
    pub(super) fn primary_key(&self, table: &LiveTable, others: &[String]) -> Option<String> {
        let id = self.map.column(Role::Id)?.name.as_str();
        let mut columns = vec![id];
        columns.extend(others.iter().map(String::as_str).filter(|other| *other != id));
        let (name, id) = (self.table(&table.name), self.list(&columns));
        if self.cannot_index(table, &columns).is_some() {
            return None;
        }
        Some(if table.primary_key().is_empty() && self.database.adds_primary_keys() {
            format!("alter table {name} add primary key ({id});")
        } else {
            format!("create unique index {} on {name} ({id});", self.index(table, "id"))
        })
    }

    /// A column of these that the database takes into an index with its first part only.
    pub(super) fn cannot_index<'c>(&self, table: &LiveTable, columns: &[&'c str]) -> Option<&'c str> {
        let in_part = |column: &&&str| {
            let column = table.column(column);
            column.is_some_and(|column| !self.database.indexes_whole(&column.type_name))
        };
        columns.iter().find(in_part).copied()
    }

    pub(super) fn unique_index(&self, table: &LiveTable, columns: &[&str], key: &str) -> Option<String> {
        if self.cannot_index(table, columns).is_some() {
            return None;
        }
        let (name, list) = (self.table(&table.name), self.list(columns));
        let index = self.index(table, "dedupe");
        // Where there are none of only some rows: NULLs do not equal each other in unique indexes.
        let only = if self.database.has_partial_indexes() {
            format!(" where {} is not null", self.quoted(key))
        } else {
            String::new()
        };
        Some(format!("create unique index {index} on {name} ({list}){only};"))
    }

    /// The condition of an index that has no other rows than those that may be claimed.
    pub(super) fn only_open(&self, status: &str) -> String {
        let literal = |label: &&StateLabel| match label {
            StateLabel::Text(text) => format!("'{}'", text.replace('\'', "''")),
            label => label.to_string(),
        };
        let labels: Vec<_> = self.map.claimable_labels().iter().map(literal).collect();
        format!(" where {} in ({})", self.quoted(status), labels.join(", "))
    }

    pub(super) fn index_on(&self, table: &LiveTable, purpose: &str, columns: &[&str], only: &str) -> Option<String> {
        if self.cannot_index(table, columns).is_some() {
            return None;
        }
        let (name, list) = (self.table(&table.name), self.list(columns));
        let index = self.index(table, purpose);
        Some(format!("create index {index} on {name} ({list}){only};"))
    }
}

/// Whether the database gives the values of a column, by its definition.
fn is_numbered(definition: &str) -> bool {
    ["identity primary key", "auto_increment", "autoincrement"]
        .iter()
        .any(|word| definition.contains(word))
}
