//! The dispatcher: hands every record to a function until a token fires.

use std::future::Future;

use posthaste::core::publisher::Delivery;
use posthaste::postgres::PostgresStore;
use posthaste::publishers::Callback;
use posthaste::relay::{Relay, RelayConfig, RelayReport};
use posthaste::{PublishError, core::store::Scope};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

/// Dispatches until the token fires; what is on its way is finished.
pub async fn until<F, Sent>(pool: PgPool, send: F, stop: CancellationToken) -> anyhow::Result<RelayReport>
where
    F: Fn(Delivery) -> Sent + Send + Sync + 'static,
    Sent: Future<Output = Result<(), PublishError>> + Send + 'static,
{
    let map = crate::map()?;
    let config = RelayConfig {
        scope: Scope {
            namespace: crate::NAMESPACE.to_owned(),
            ..Scope::default()
        },
        ..RelayConfig::with_policy(map.policy())?
    };
    let relay = Relay::new(PostgresStore::with_map(pool, map)?, Callback::new(send));
    Ok(relay.config(config).run_until(stop).await?)
}
