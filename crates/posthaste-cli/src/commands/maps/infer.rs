//! `posthaste maps infer`

use std::io::{Write, stdout};

use anyhow::{Context, bail};
use clap::Args;
use posthaste_core::TableMap;
use posthaste_core::table::infer::{infer, may_belong, status_column};
use posthaste_core::table::{Catalogue, Identifier, LiveTable, TableName};

use crate::config::Config;
use crate::wiring;

/// Propose a map for a table that is there
///
/// Prints TOML. Names, types, constraints and the words in the rows say most of it; what they cannot say is guessed and
/// marked, and stands at the top as a list of things to decide.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste maps infer --table outbox_events > outbox.toml
  posthaste maps infer --table outbox --schema shop --database-url postgres://db/shop")]
pub(super) struct Infer {
    /// The outbox table
    #[arg(long)]
    table: String,
    /// Its schema [default: where unqualified names are looked for]
    #[arg(long)]
    schema: Option<String>,
}

/// Different words that a status may have and still be one.
const WORDS: u32 = 20;

impl Infer {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<()> {
        let database = &config.database;
        wiring::probe(database).await?;
        let catalogue = wiring::catalogue(database).await?;
        let schema = self.schema.map(Identifier::new).transpose().context("--schema")?;
        let name = TableName {
            schema: schema.clone(),
            name: Identifier::new(self.table).context("--table")?,
        };
        let tables = catalogue.tables(schema.as_ref()).await?;
        let Some(mut table) = catalogue.describe(&name).await? else {
            let known: Vec<_> = tables.iter().map(ToString::to_string).take(20).collect();
            bail!(
                "--table: there is no table {name} in {}; there are {}",
                database.url(),
                known.join(", ")
            );
        };
        read_words(&mut table, &*catalogue).await?;
        let mut others = Vec::new();
        for other in tables.iter().filter(|other| may_belong(&name, other)) {
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

/// Rows say which words there are, where no constraint does.
async fn read_words(table: &mut LiveTable, catalogue: &dyn Catalogue) -> anyhow::Result<()> {
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
