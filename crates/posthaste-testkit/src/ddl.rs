//! The tables of a map, made for any database.

use std::collections::BTreeSet;

use posthaste_core::MessageId;
use posthaste_sql::TableMap;
use posthaste_sql::table::{Column, Database, Kind, Role, Table, TableName};

const EVERYTHING: &str = include_str!("everything.toml");

/// A map with a column for every role, those that Posthaste's own table does without among them.
pub fn everything() -> TableMap {
    TableMap::from_toml(EVERYTHING).expect("it is a good map")
}

/// Statements that make a map's tables with the types of a database, for a map whose owner has another one.
pub fn ddl(map: &TableMap, database: Database) -> String {
    let quoted = |name: &str| format!("{0}{name}{0}", database.quote());
    let table = |of: &TableName| quoted(of.name.as_str());
    let numbered = map.has(Role::Seq) && database == Database::Sqlite;
    let mut columns: Vec<String> = Vec::new();
    let mut named = BTreeSet::new();
    for (role, column) in map.columns() {
        if named.insert(column.name.as_str()) {
            let rest = match role {
                Role::Id if numbered => "not null unique",
                Role::Id => "primary key",
                Role::Seq if numbered => "primary key",
                Role::Seq => "unique",
                Role::Attempts | Role::Version => "default 0",
                _ => "",
            };
            columns.push(format!(
                "{} {} {rest}",
                quoted(column.name.as_str()),
                type_of(database, role, column)
            ));
        }
    }
    let outbox = map.table(Table::Outbox).map(table).unwrap_or_default();
    // Names that differ in case or in spaces at their ends are different names.
    let exact = match database {
        Database::MySql => {
            "character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */"
        }
        Database::Postgres | Database::Sqlite => "",
    };
    let mut ddl = vec![format!("create table {outbox} ({}) {exact};", columns.join(", "))];
    let unique: Vec<_> = [Role::Namespace, Role::Topic, Role::DedupeKey]
        .into_iter()
        .filter_map(|role| map.column(role))
        .map(|column| quoted(column.name.as_str()))
        .collect();
    if map.has(Role::DedupeKey) {
        ddl.push(format!(
            "create unique index {} on {outbox} ({});",
            quoted("once_only"),
            unique.join(", ")
        ));
    }
    for (purpose, side) in map.tables().filter(|(purpose, _)| *purpose != Table::Outbox) {
        let columns: Vec<_> = map
            .side_columns(purpose)
            .map(|(role, column)| format!("{} {}", quoted(column.name.as_str()), type_of(database, role, column)))
            .collect();
        ddl.push(format!("create table {} ({});", table(side), columns.join(", ")));
    }
    ddl.join("\n")
}

/// The id of a row as a literal that its column is compared with, so that an index is used and no other row is locked.
pub fn id_literal(map: &TableMap, database: Database, id: MessageId) -> String {
    let is_bytes = map
        .column(Role::Id)
        .is_some_and(|column| column.kind == Kind::UuidBytes);
    match (database, id.uuid().filter(|_| is_bytes)) {
        (Database::Postgres, Some(uuid)) => format!("'\\x{}'", uuid.simple()),
        (Database::MySql | Database::Sqlite, Some(uuid)) => format!("x'{}'", uuid.simple()),
        (_, None) => format!("'{id}'"),
    }
}

fn type_of(database: Database, role: Role, column: &Column) -> String {
    let long = matches!(role, Role::Payload | Role::LastError) && column.max.is_none();
    match (database, column.generated) {
        (Database::Postgres, true) => "bigint generated always as identity".to_owned(),
        (Database::MySql, true) => "bigint auto_increment".to_owned(),
        (Database::Sqlite, true) => "integer".to_owned(),
        (Database::MySql, false) if long && column.kind == Kind::Text => "longtext".to_owned(),
        _ => database.column_type(column.kind, column.max),
    }
}
