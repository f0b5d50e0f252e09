//! `posthaste maps infer`

use std::io::{Write, stdout};

use anyhow::{Context, bail};
use clap::Args;
use posthaste_sql::TableMap;
use posthaste_sql::table::infer::{headers_column, infer, may_belong, status_column};
use posthaste_sql::table::{Catalogue, Identifier, LiveTable, TableName};

use crate::config::{Config, Database, DatabaseUrl};
use crate::wiring;

/// Propose a map for a table that is there
///
/// Prints TOML. Names, types, constraints and the labels in the rows say most of it; what they cannot say is guessed and
/// marked, and stands at the top as a list of things to decide.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste maps infer --table outbox_events > outbox.toml
  posthaste maps infer --table outbox --schema shop --database-url postgres://db/shop")]
pub(super) struct Infer {
    /// The outbox table, with its schema before a dot if need be
    #[arg(long, value_name = "[SCHEMA.]TABLE")]
    table: String,
    /// Its schema [default: database.schema, else where unqualified names are looked for]
    #[arg(long)]
    schema: Option<String>,
}

/// Different labels that a status may have and still be one.
const WORDS: u32 = 20;

/// Different values by which a column is known to have headers.
const HEADERS: u32 = 50;

impl Infer {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<()> {
        let database = &config.database;
        wiring::probe(database).await?;
        let catalogue = wiring::catalogue(database).await?;
        let names = self.names(database)?;
        let mut found = None;
        for name in &names {
            if let Some(table) = catalogue.describe(name).await? {
                found = Some((name, table));
                break;
            }
        }
        let schema = names.first().and_then(|name| name.schema.clone());
        let Some((name, mut table)) = found else {
            let tables = catalogue.tables(schema.as_ref()).await?;
            let known: Vec<_> = tables.iter().map(ToString::to_string).take(20).collect();
            let known = if known.is_empty() {
                "there are none; give its schema by --schema or as --table schema.table".to_owned()
            } else {
                format!("there are {}", known.join(", "))
            };
            let asked: Vec<_> = names.iter().map(ToString::to_string).collect();
            bail!(
                "--table: there is no table {} in {}; {known}",
                asked.join(" or "),
                database.url()
            );
        };
        let tables = catalogue.tables(name.schema.as_ref()).await?;
        read_labels(&mut table, &*catalogue).await?;
        read_headers(&mut table, &*catalogue).await?;
        let mut others = Vec::new();
        for other in tables.iter().filter(|other| may_belong(name, other)) {
            others.extend(catalogue.describe(other).await?);
        }
        let proposal = infer(&table, &others, catalogue.database());
        write!(stdout(), "{}", proposal.toml)?;
        if let Err(error) = TableMap::from_toml(&proposal.toml) {
            tracing::warn!("this proposal is not a map yet: {error}");
        }
        Ok(())
    }
}

impl Infer {
    /// What the table may be called: its name with the schema that was given or configured, and with the one before a dot.
    fn names(&self, database: &Database) -> anyhow::Result<Vec<TableName>> {
        let of_postgres = matches!(database.url(), DatabaseUrl::Postgres(_));
        let configured = database.schema.as_deref().filter(|_| of_postgres);
        let schema = match (&self.schema, configured) {
            (Some(schema), _) => Some(Identifier::new(schema).context("--schema")?),
            (None, Some(schema)) => Some(Identifier::new(schema).context("database.schema")?),
            (None, None) => None,
        };
        let mut names = vec![TableName {
            schema,
            name: Identifier::new(&*self.table).context("--table")?,
        }];
        if let (Some((schema, name)), None) = (self.table.split_once('.'), &self.schema)
            && !schema.is_empty()
            && !name.is_empty()
        {
            names.push(TableName {
                schema: Some(Identifier::new(schema).context("--table")?),
                name: Identifier::new(name).context("--table")?,
            });
        }
        Ok(names)
    }
}

/// Rows say whether a column that looks like headers has texts only.
async fn read_headers(table: &mut LiveTable, catalogue: &dyn Catalogue) -> anyhow::Result<()> {
    let Some(name) = headers_column(table).map(|column| column.name.clone()) else {
        return Ok(());
    };
    let values = catalogue
        .values(&table.name, &Identifier::new(&*name)?, HEADERS)
        .await?;
    if let Some(column) = table.columns.iter_mut().find(|column| column.name == name) {
        column.values = values;
    }
    Ok(())
}

/// Rows say which labels there are, where no constraint does.
async fn read_labels(table: &mut LiveTable, catalogue: &dyn Catalogue) -> anyhow::Result<()> {
    let Some(status) = status_column(table).filter(|status| status.values.is_empty()) else {
        return Ok(());
    };
    let name = status.name.clone();
    let values = catalogue.values(&table.name, &Identifier::new(&*name)?, WORDS).await?;
    if let Some(status) = table.columns.iter_mut().find(|column| column.name == name) {
        status.values = values;
    }
    Ok(())
}
