//! Wake-ups by watching the database file.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::wake::Listener;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};
use tokio::time::sleep;

/// How often the file is looked at: ten statements a second, a small part of what an idle relay may cost.
const LOOK: Duration = Duration::from_millis(100);

/// How long a watcher that cannot connect waits before it tries again.
const RECONNECT: Duration = Duration::from_secs(1);

/// Wakes at every commit of another connection, in whatever process. The relay's own commits wake it too, once each;
/// the claim that follows finds nothing, writes nothing, and so ends it.
///
/// Has a connection of its own, so that a pool of one is enough for the relay.
pub(crate) struct Watcher {
    options: SqliteConnectOptions,
    watched: Option<Watched>,
}

struct Watched {
    conn: SqliteConnection,
    version: i64,
}

impl Watcher {
    pub(crate) fn new(options: &SqliteConnectOptions) -> Self {
        Self {
            options: options.clone().disable_statement_logging(),
            watched: None,
        }
    }

    async fn connect(&self) -> sqlx::Result<Watched> {
        let mut conn = self.options.connect().await?;
        let version = data_version(&mut conn).await?;
        Ok(Watched { conn, version })
    }
}

/// A number that changes whenever another connection commits.
async fn data_version(conn: &mut SqliteConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar("pragma data_version").fetch_one(conn).await
}

#[async_trait]
impl Listener for Watcher {
    async fn wait(&mut self) {
        let Some(watched) = &mut self.watched else {
            match self.connect().await {
                // What was committed while there was no watcher is found by the poll that this wake-up causes.
                Ok(watched) => self.watched = Some(watched),
                Err(error) => {
                    tracing::debug!(%error, "cannot watch the database file; polling goes on");
                    sleep(RECONNECT).await;
                }
            }
            return;
        };
        loop {
            sleep(LOOK).await;
            match data_version(&mut watched.conn).await {
                Ok(version) if version == watched.version => {}
                Ok(version) => {
                    watched.version = version;
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot watch the database file; polling goes on");
                    self.watched = None;
                    return;
                }
            }
        }
    }
}
