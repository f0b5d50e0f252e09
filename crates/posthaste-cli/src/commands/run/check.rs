//! `posthaste run --check`

use anyhow::Context as _;
use posthaste_relay::Spool;
use serde_json::json;

use crate::config::Config;
use crate::wiring::{self, IfMissing};
use crate::{listener, schema, terminal};

pub(super) async fn run(config: &Config, json: bool) -> anyhow::Result<()> {
    let database = &config.database;
    let publisher = wiring::publisher(config)?;
    let _listener = listener::listen(&config.metrics).await?;
    let net = safety_net(config).await?;
    wiring::probe(database).await?;
    wiring::writable(database)?;
    let if_missing = if database.auto_migrate() {
        IfMissing::Pretend
    } else {
        IfMissing::Refuse
    };
    let store = wiring::store(database, if_missing).await?;
    let missing = schema::missing(&*store).await?;
    let found = if missing.is_empty() {
        let tables = if let Some(map) = database.table_map() {
            schema::prepare(&*store, database).await?;
            let warnings = match schema::findings(database).await?.len() {
                0 => String::new(),
                _ => format!(", with warnings (see `{}`)", database.check_command()),
            };
            format!("table map {} fits{warnings}", map.name())
        } else {
            let version = store.applied().await?.into_iter().max().unwrap_or_default();
            format!("schema version {version}")
        };
        config.relay.validate_for(&*store)?;
        // First: the queue of a move that was begun refuses claims, which says nothing of its table.
        schema::refuse_unserved_log(&*store, config).await?;
        store.check_for(&config.relay.scope).await?;
        let namespace = &config.relay.scope.namespace;
        let stats = store.stats(namespace).await?;
        format!(
            "{tables}; namespace {namespace}: {} pending, {} processing, {} dead",
            stats.pending, stats.processing, stats.dead
        )
    } else if database.auto_migrate() {
        "no tables yet; `run` will create them".to_owned()
    } else {
        return schema::prepare(&*store, database).await;
    };
    let warning = match wiring::served_log(database).await? {
        Some(log) if missing.is_empty() => log.cannot_tend_segments().await?,
        _ => None,
    };
    let address = database.url();
    let listen = config.metrics.listen;
    let mut out = terminal::stdout();
    if json {
        let publisher = publisher.check().await?;
        return out.json(&json!({
            "database": address.to_string(),
            "product": address.product(),
            "outbox": found,
            "warning": warning,
            "publisher": publisher,
            "safety_net": net,
            "metrics": listen.map(|listen| format!("http://{listen}/metrics")),
        }));
    }
    writeln!(out, "settings   ok")?;
    writeln!(out, "database   {address} ({})", address.product())?;
    writeln!(out, "outbox     {found}")?;
    if let Some(warning) = &warning {
        writeln!(out, "warning    {warning}")?;
    }
    // After what else was found: it may take its time, and fail.
    writeln!(out, "publisher  {}", publisher.check().await?)?;
    writeln!(
        out,
        "safety net {}",
        net.as_deref().unwrap_or("off; set safety_net.file")
    )?;
    match listen {
        Some(listen) => writeln!(out, "metrics    http://{listen}/metrics")?,
        None => writeln!(out, "metrics    off; set metrics.listen to serve them")?,
    }
    Ok(())
}

/// Whether dead letters can be written to the file, and alerts be expected to arrive.
async fn safety_net(config: &Config) -> anyhow::Result<Option<String>> {
    let mut found = Vec::new();
    if let Some(spool) = config.safety_net.spool().map(Spool::new) {
        spool.check().context("safety_net.file")?;
        let letters = spool.read().context("safety_net.file")?.open.len();
        found.push(format!("{} holds {letters} letters", spool.file().display()));
    }
    if let Some(alerts) = wiring::alerts(config)? {
        found.push(alerts.check().await.context("safety_net.alert.url")?);
    }
    Ok((!found.is_empty()).then(|| found.join("; ")))
}
