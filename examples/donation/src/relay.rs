//! Notifies people of donations. `posthaste run --config posthaste.toml` does the same without a line of code.

use anyhow::Context;
use posthaste::TableMap;
use posthaste::mysql::MySqlStore;
use posthaste::publishers::http::DiscordOptions;
use posthaste::publishers::{HttpFormat, HttpOptions, HttpPublisher, HttpUrl, LogPublisher};
use posthaste::relay::{Relay, RelayConfig};
use posthaste::sql::table::BuiltinMap;
use sqlx::MySqlPool;

/// The map of the service's outbox.
pub fn map() -> anyhow::Result<TableMap> {
    let builtin = BuiltinMap::find("donation").context("the map `donation` ships with Posthaste")?;
    Ok(builtin.map()?)
}

/// How the outbox is served unless somebody says otherwise: every ten seconds, three retries, and so on.
pub fn policy() -> anyhow::Result<RelayConfig> {
    Ok(RelayConfig::with_policy(map()?.policy())?)
}

/// A relay that posts to a webhook, or writes to the log if there is none.
pub fn relay(pool: MySqlPool, webhook: Option<HttpUrl>, config: RelayConfig) -> anyhow::Result<Relay> {
    let store = MySqlStore::with_map(pool, map()?)?;
    let relay = match webhook {
        Some(url) => Relay::new(store, HttpPublisher::new(notification(url))?),
        None => Relay::new(store, LogPublisher::default()),
    };
    Ok(relay.config(config))
}

fn notification(url: HttpUrl) -> HttpOptions {
    let notification = DiscordOptions::default()
        .username("Donations")
        .title("{payload.guest} gave {payload.amount} points")
        .text("to {payload.admin}");
    HttpOptions::new(url).format(HttpFormat::Discord).discord(notification)
}
