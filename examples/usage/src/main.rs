//! Records some usage and dispatches it to standard output until Ctrl-C.

use posthaste::core::publisher::Delivery;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use usage::record::Usage;
use uuid::Uuid;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let url = std::env::var("DATABASE_URL").unwrap_or_else(|_| "postgres://localhost/usage".to_owned());
    let pool = PgPool::connect(&url).await?;
    usage::setup(&pool).await?;
    let outbox = usage::record::outbox(pool.clone())?;
    let tenant = Uuid::new_v4();
    for reading in 1..=10 {
        let mut tx = pool.begin().await?;
        usage::record::record(
            &outbox,
            &mut tx,
            &Usage {
                tenant,
                reading,
                units: 5,
            },
        )
        .await?;
        tx.commit().await?;
    }
    let stop = CancellationToken::new();
    let on_signal = stop.clone();
    tokio::spawn(async move {
        // Without a handler the signal ends the process, which is safe too.
        let _ = tokio::signal::ctrl_c().await;
        on_signal.cancel();
    });
    let print = |delivery: Delivery| async move {
        println!("{}", String::from_utf8_lossy(&delivery.message.payload));
        Ok(())
    };
    usage::dispatch::until(pool, print, stop).await?;
    Ok(())
}
