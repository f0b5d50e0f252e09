//! Whether the tables are there, and making them where that was asked for.

use std::sync::Arc;

use anyhow::bail;
use posthaste_core::StoreError;
use posthaste_core::store::{Migration, Scope, Store, StoreErrorKind};
use posthaste_sql::table::catalogue::describe_all;
use posthaste_sql::table::check::check;
use posthaste_sql::table::{Finding, Severity};

use crate::config::{Config, Database};
use crate::unserved::Unserved;
use crate::wiring::{self, Backend, IfMissing};

/// The outbox that is there, for commands that look at one or change what is in it. They never make one: in the wrong
/// directory an empty outbox would look like one in which all is well.
pub async fn existing(database: &Database) -> anyhow::Result<Arc<dyn Store>> {
    wiring::probe(database).await?;
    wiring::refuse_pooled_log(database).await?;
    let opened = wiring::store(database, IfMissing::Refuse).await;
    let store = opened.map_err(|error| match error.downcast_ref::<StoreError>() {
        Some(missing) if missing.kind == StoreErrorKind::SchemaMissing => error.context("there is no outbox here"),
        _ => error,
    })?;
    require(&*store, database).await?;
    Ok(store)
}

/// The outbox, made first where the settings say so, for commands that write messages.
pub async fn open(database: &Database) -> anyhow::Result<Arc<dyn Store>> {
    wiring::probe(database).await?;
    let store = wiring::store(database, if_missing(database)).await?;
    prepare(&*store, database).await?;
    Ok(store)
}

/// A file is made only where its tables would be made, too.
pub fn if_missing(database: &Database) -> IfMissing {
    if database.auto_migrate() {
        IfMissing::Create
    } else {
        IfMissing::Refuse
    }
}

/// Makes missing tables if the settings say so; else their absence is an error. Existing tables must be
/// what their map says.
pub async fn prepare(store: &dyn Store, database: &Database) -> anyhow::Result<()> {
    if database.auto_migrate() && !missing(store).await?.is_empty() {
        let applied = store.migrate().await?;
        tracing::info!(database = %database.url(), steps = applied.len(), "created the outbox tables");
        return Ok(());
    }
    require(store, database).await
}

/// The tables as they are must do.
async fn require(store: &dyn Store, database: &Database) -> anyhow::Result<()> {
    if let Some(map) = database.table_map() {
        let findings = findings(database).await?;
        let mut errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
        let Some(Finding { field, problem, .. }) = errors.next() else {
            return Ok(());
        };
        let more = match errors.count() {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        bail!(
            "{}: the table is not what the table map `{}` says: {field}: {problem}{more}; `{}` prints the SQL \
             that fixes it",
            database.url(),
            map.name(),
            database.check_command()
        );
    }
    let missing = missing(store).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let (place, settings) = wiring::place(database);
    if missing.len() == store.migrations().len() {
        bail!(
            "{}: there are no outbox tables {place}; check that {settings} right, then run `posthaste migrate up` to make \
             them, or set database.auto_migrate = true",
            database.url()
        );
    }
    bail!(
        "{}: the outbox tables {place} are old, without {}; run `posthaste migrate up`, or set database.auto_migrate = true",
        database.url(),
        names(&missing)
    );
}

/// So many migrations are named each.
const MAX_NAMED: usize = 3;

/// Migrations as a sentence names them.
pub fn names(steps: &[Migration]) -> String {
    let name = |step: &Migration| format!("{} ({})", step.version, step.name);
    match steps {
        [] => "nothing".to_owned(),
        [step] => format!("migration {}", name(step)),
        [first, .., last] if steps.len() > MAX_NAMED => {
            format!("{} migrations from {} to {}", steps.len(), name(first), name(last))
        }
        [others @ .., last] => {
            let others: Vec<_> = others.iter().map(name).collect();
            format!("migrations {} and {}", others.join(", "), name(last))
        }
    }
}

/// A relay of the queue would find nothing to do where the log is in use, and look healthy.
pub async fn refuse_unserved_log(store: &dyn Store, config: &Config) -> anyhow::Result<()> {
    let unserved = Unserved::look(store, &config.database, &config.relay.scope.namespace).await?;
    match unserved.filter(Unserved::keeps_relays_away) {
        Some(unserved) => bail!("{}: {unserved}", config.database.url()),
        None => Ok(()),
    }
}

/// The migrations that were not applied.
pub async fn missing(store: &dyn Store) -> anyhow::Result<Vec<Migration>> {
    let applied = store.applied().await?;
    let mut steps = store.migrations();
    steps.retain(|step| !applied.contains(&step.version));
    Ok(steps)
}

/// What is not as the table map needs it.
pub async fn findings(database: &Database) -> anyhow::Result<Vec<Finding>> {
    let backend = Backend::of(database);
    let map = match database.table_map() {
        // Also one that this database cannot serve: that is a finding.
        Some(map) if backend.database().refuses(map.strategy()).is_some() => map.clone(),
        _ => wiring::table_map(database, backend)?,
    };
    let catalogue = wiring::catalogue(database).await?;
    let live = describe_all(&map, &*catalogue).await?;
    Ok(check(&map, &live, backend.database()))
}

/// What the table refuses of what a relay would write to it; to be asked when it is what its map says.
pub async fn refusal(database: &Database, scope: &Scope) -> anyhow::Result<Option<Finding>> {
    let store = wiring::store(database, IfMissing::Refuse).await?;
    match store.check_for(scope).await {
        Ok(()) => Ok(None),
        Err(error) if error.kind.is_transient() => Err(error.into()),
        Err(error) => Ok(Some(Finding {
            severity: Severity::Error,
            field: "verdicts".to_owned(),
            problem: error.to_string(),
            fix: None,
        })),
    }
}
