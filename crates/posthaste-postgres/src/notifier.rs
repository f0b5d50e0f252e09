//! Wake-ups over `LISTEN`/`NOTIFY`, outside every producer's transaction.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::wake::{Listener, Notifier};
use sqlx::PgPool;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::{Pooling, PostgresStore};

/// After a notification others are gathered into one for this long. It is what messages of a stream wait for, half of it on
/// average.
const COALESCE: Duration = Duration::from_millis(2);

/// How long a listener that cannot connect waits before it tries again.
const RECONNECT: Duration = Duration::from_secs(1);

/// Wakes every relay that listens to an outbox, in whatever process. Many notifications become one `NOTIFY`, sent on a
/// connection of its own: inside the producers' transactions it would serialise their commits.
#[derive(Clone, Debug)]
pub struct PostgresNotifier(mpsc::Sender<()>);

impl PostgresNotifier {
    pub(crate) fn start(store: PostgresStore) -> Self {
        // One place: a notification that finds it taken is already on its way.
        let (notifications, mut notified) = mpsc::channel(1);
        tokio::spawn(async move {
            let channel = store.channel();
            while notified.recv().await.is_some() {
                let query = store.statements.common.notify.query().bind(&channel);
                let sent = store.execute_alone(query).await;
                if let Err(error) = sent {
                    tracing::debug!(%error, "a wake-up was lost; relays will find the work at their next poll");
                }
                sleep(COALESCE).await;
            }
        });
        Self(notifications)
    }
}

impl Notifier for PostgresNotifier {
    fn notify(&self) {
        // Full means that a notification is pending, closed that no listener is left; both are fine.
        let _ = self.0.try_send(());
    }
}

/// Hears the notifier. Has a connection of its own, so that a pool of one is enough for the relay.
pub(crate) struct ChannelListener {
    pool: PgPool,
    channel: String,
    connection: Option<PgListener>,
}

impl ChannelListener {
    /// None if there is no session to listen on: a pooler in transaction mode is in between, and no direct address is
    /// given.
    pub(crate) async fn new(store: &PostgresStore) -> Option<Self> {
        let options = match &store.direct {
            Some(direct) => (**direct).clone(),
            None if store.sessions.detect(&store.pool).await == Pooling::Transaction => return None,
            None => (*store.pool.connect_options()).clone(),
        };
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
        Some(Self {
            pool,
            channel: store.channel(),
            connection: None,
        })
    }

    async fn connect(&self) -> sqlx::Result<PgListener> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen(&self.channel).await?;
        Ok(listener)
    }
}

#[async_trait]
impl Listener for ChannelListener {
    async fn wait(&mut self) {
        let Some(listener) = &mut self.connection else {
            match self.connect().await {
                // What came while there was no listener is found by the poll that this wake-up causes.
                Ok(listener) => self.connection = Some(listener),
                Err(error) => {
                    tracing::debug!(%error, "cannot listen for wake-ups; polling goes on");
                    sleep(RECONNECT).await;
                }
            }
            return;
        };
        // `None` is a lost connection that is being restored: wake up, for what came in between.
        if let Err(error) = listener.try_recv().await {
            tracing::debug!(%error, "lost the connection that listens for wake-ups; polling goes on");
            self.connection = None;
            sleep(RECONNECT).await;
        }
    }
}
