//! The inbox forgets what is old, and not too soon.

use std::time::Duration;

use posthaste_consumer::{Connection, Consumer, Once, Received, retention_gaps};
use sqlx::{AssertSqlSafe, Executor, PgConnection};

use crate::support;
use crate::support::{Running, SOLD, Sale, World, logs, until};

const DAY: Duration = Duration::from_hours(24);

async fn idle(_: &mut PgConnection, _: Received<Sale>) -> Result<(), posthaste_consumer::HandlerError> {
    Ok(())
}

/// Records older than seven days go, in batches until none is left; younger ones and other consumers' stay. (These tables
/// have no cursor, whose rows would be old, too.)
///
/// Proves C16.
#[tokio::test(flavor = "multi_thread")]
async fn the_janitor_forgets_old_records_of_its_own_consumer() {
    let Some(world) = World::new(1).await else { return };
    let insert = format!(
        "insert into {}.inbox (consumer, key, handled_at)
         select consumer, n::text, now() - age from generate_series(1, 2500) n,
             (values ('{group}', interval '8 days'), ('another', interval '8 days')) as old (consumer, age);
         insert into {}.inbox (consumer, key, handled_at) values ('{group}', 'young', now() - interval '6 days')",
        world.schema,
        world.schema,
        group = world.group
    );
    world
        .store
        .pool()
        .execute(sqlx::raw_sql(AssertSqlSafe(insert)))
        .await
        .unwrap();
    let mine = async || -> Vec<String> {
        let sql = format!("select key from {}.inbox where consumer = $1", world.schema);
        sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(&world.group)
            .fetch_all(world.store.pool())
            .await
            .unwrap()
    };
    let config = world.config();
    assert_eq!(config.inbox_retention, 7 * DAY, "the default");
    assert!(config.janitor_interval > support::SOON, "so one round has to do");
    let running = Running::start(Consumer::new(config.clone(), world.inbox()).on(SOLD, Once::per_event(), idle));
    until("old records are gone", async || mine().await == ["young"]).await;
    running.stop().await;

    let config = config.janitor_interval(Duration::from_millis(50));
    let running = Running::start(Consumer::new(config, world.inbox()).on(SOLD, Once::per_event(), idle));
    // One that grows old while the consumer runs.
    let age = format!(
        "update {}.inbox set handled_at = now() - interval '8 days' where key = 'young'",
        world.schema
    );
    world.store.pool().execute(AssertSqlSafe(age)).await.unwrap();
    until("and so is the one that grew old", async || mine().await.is_empty()).await;
    running.stop().await;
    assert_eq!(world.recorded().await.len(), 2500, "those of the other consumer");
}

/// A topic that is kept for longer than the inbox remembers is named at the start, with the remedy; one that is not, is
/// not.
///
/// Proves pitfall 21.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_outlives_the_inbox_is_named_at_the_start() {
    if support::left_out("kafka") || support::left_out("postgres") {
        return;
    }
    let world = World::on(&support::bootstrap()).await;
    let names = ["week", "month", "ever", "compact"].map(|name| format!("{name}-{}", world.topic));
    let millis = |days: u64| (days * 24 * 60 * 60 * 1000).to_string();
    for (name, settings) in names.iter().zip([
        vec![("retention.ms", millis(7))],
        vec![("retention.ms", millis(30))],
        vec![("retention.ms", "-1".to_owned())],
        vec![("retention.ms", millis(7)), ("cleanup.policy", "compact".to_owned())],
    ]) {
        let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        world.create_topic(name, 1, &settings).await;
    }
    world
        .create_topic(&format!("{}.dlq", names[0]), 1, &[("retention.ms", &millis(30))])
        .await;

    let connection = Connection::to(&world.bootstrap);
    let mut gaps = retention_gaps(&connection, &names, 7 * DAY).await.unwrap();
    gaps.sort_by_key(|gap| (gap.is_dead_letters(), gap.kept));
    let found: Vec<_> = gaps.iter().map(|gap| (gap.topic.clone(), gap.kept)).collect();
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found[..2].contains(&(names[2].clone(), None)) && found[..2].contains(&(names[3].clone(), None)));
    assert_eq!(found[2], (names[1].clone(), Some(30 * DAY)));
    assert_eq!(found[3], (format!("{}.dlq", names[0]), Some(30 * DAY)));
    assert_eq!(retention_gaps(&connection, &names[..1], 30 * DAY).await.unwrap(), []);

    let config = world.config().topics(names.to_vec());
    let running = Running::start(Consumer::new(config, world.inbox()).on(SOLD, Once::per_event(), idle));
    let warned = |name: &str| logs::with(&["WARN", &format!("topic {name} is kept"), "raise inbox_retention"]);
    until("the month is named", async || !warned(&names[1]).is_empty()).await;
    running.stop().await;
    assert!(
        warned(&names[1])[0].contains("for 30days, but the inbox forgets after 7days"),
        "{:?}",
        warned(&names[1])
    );
    assert!(warned(&names[2])[0].contains("forever"));
    assert_eq!(warned(&names[0]), Vec::<String>::new());
}
