//! From PostgreSQL to Kafka: the relay beside a bare loop over the same table, with the same settings of the producer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use posthaste_kafka::Connection as Brokers;
use posthaste_postgres::PostgresStore;
use posthaste_publishers::kafka::{KafkaOptions, KafkaPublisher};
use posthaste_relay::{Relay, RelayConfig};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::types::RDKafkaErrorCode;
use sqlx::{Connection, PgConnection};

use crate::Extent;
use crate::backlog::Keys;
use crate::bare_loop::BareLoop;
use crate::contest::{Contest, TURN};
use crate::database::Database;
use crate::drain::config;
use crate::first_rows::FirstRows;
use crate::report::{Figure, Target};

/// The topic of the rows in a backlog.
const TOPIC: &str = "bench-events";
const PARTITIONS: i32 = 12;

/// One way from the table to the topic.
#[derive(Clone, Copy)]
enum Contender {
    BareLoop,
    Relay { per_key: bool },
}

/// Those who take turns on one backlog; the bare loop is what the others are compared with.
const CONTENDERS: [(&str, Contender, Option<f64>); 3] = [
    ("bare loop", Contender::BareLoop, None),
    ("relay, unordered", Contender::Relay { per_key: false }, Some(0.7)),
    ("relay, 1,000 keys", Contender::Relay { per_key: true }, Some(0.5)),
];

pub(crate) async fn run(database: &Database, brokers: &str, extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let options = KafkaOptions::new(Brokers::to(brokers));
    let client = options.client_config()?;
    let admin: AdminClient<DefaultClientContext> = client.create()?;
    create_topic(&admin).await?;
    let bench = Bench {
        store: database.store(),
        conn: database.connect().await?,
        bare_loop: BareLoop::new(&client)?,
        publisher: Arc::new(KafkaPublisher::new(options)?),
    };
    let figures = bench.measure(extent).await;
    admin.delete_topics(&[TOPIC], &AdminOptions::new()).await?;
    figures
}

async fn create_topic(admin: &AdminClient<DefaultClientContext>) -> anyhow::Result<()> {
    // As many replicas as the cluster says.
    let topic = NewTopic::new(TOPIC, PARTITIONS, TopicReplication::Fixed(-1));
    let created = admin.create_topics([&topic], &AdminOptions::new()).await;
    let created = created.context("cannot create a topic on --kafka")?;
    for result in created {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, code)) => anyhow::bail!("cannot create the topic {topic}: {code}"),
        }
    }
    Ok(())
}

struct Bench {
    store: PostgresStore,
    conn: PgConnection,
    bare_loop: BareLoop,
    publisher: Arc<KafkaPublisher>,
}

impl Bench {
    async fn measure(mut self, extent: Extent) -> anyhow::Result<Vec<Figure>> {
        let contenders = CONTENDERS.map(|(_, contender, _)| contender);
        let keys = Keys::Even(1_000);
        // Producers, pools and brokers all take a while before they are as fast as they get.
        self.race(keys, &contenders, 1).await?;
        let speeds = self.compare(keys, &contenders, extent.pick(2, 6)).await?;
        let mut figures = Vec::new();
        for ((name, _, limit), speeds_of_one) in CONTENDERS.into_iter().zip(&speeds) {
            let figure = Figure::new(format!("kafka: {name}"), "rows/s", speeds_of_one);
            figures.push(match limit {
                Some(limit) => figure.relative_to(&speeds[0]).target(Target::RatioAtLeast(limit)),
                None => figure,
            });
        }
        self.conn.close().await?;
        self.store.pool().close().await;
        Ok(figures)
    }
}

impl Contest for Bench {
    const NAME: &str = "kafka";

    type Contender = Contender;

    fn conn(&mut self) -> &mut PgConnection {
        &mut self.conn
    }

    async fn turn(&mut self, contender: Contender) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let delivered = match contender {
            Contender::BareLoop => {
                let batch = RelayConfig::default().batch_size;
                self.bare_loop.drain(&mut self.conn, TURN, batch).await?
            }
            Contender::Relay { per_key } => {
                let store = FirstRows::new(self.store.clone(), TURN);
                let relay = Relay::new(store, Arc::clone(&self.publisher)).config(config(per_key));
                relay.drain().await?.delivered
            }
        };
        let elapsed = started.elapsed();
        ensure!(
            delivered == u64::from(TURN),
            "{delivered} of {TURN} rows were delivered"
        );
        Ok(elapsed)
    }
}
