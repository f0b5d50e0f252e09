//! Where rows arrive: nowhere, at brokers within this process, or at a Kafka cluster.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::metadata::MetadataTopic;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::pace::Pace;
use crate::processes;
use crate::tally::{Arrived, Tally};
use crate::workload::{TOPIC, Workload, number_of};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// How long reading back may go without a record.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const PARTITIONS: i32 = 12;
/// A broker of the mock keeps five megabytes of a partition, and all is to be read back.
const MOCK_PARTITIONS: i32 = 48;

/// A kind of sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SinkKind {
    /// Rows are counted and thrown away
    Null,
    /// Brokers of librdkafka's mock cluster, within the measuring process
    Mock,
    /// A Kafka cluster
    Kafka,
}

impl SinkKind {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Mock => "Kafka mock",
            Self::Kafka => "Kafka",
        }
    }
}

/// A Kafka cluster that was given.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) bootstrap: String,
    /// The processes of its brokers, if they are known.
    pub(crate) pids: Vec<u32>,
}

impl Cluster {
    /// Creates the topic, unless it is there.
    pub(crate) async fn create_topic(&self) -> anyhow::Result<()> {
        let admin: AdminClient<DefaultClientContext> = client(&self.bootstrap).create()?;
        // As many replicas as the cluster says.
        let topic = NewTopic::new(TOPIC, PARTITIONS, TopicReplication::Fixed(-1));
        let created = admin.create_topics([&topic], &AdminOptions::new()).await;
        for result in created.context("cannot create a topic on --kafka")? {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((topic, code)) => bail!("cannot create the topic {topic}: {code}"),
            }
        }
        Ok(())
    }
}

/// The brokers of one run, and where their topic ended before it.
pub(crate) struct Brokers {
    pub(crate) bootstrap: String,
    pids: Vec<u32>,
    /// Kept for the run, to ask where partitions end: a new client for each question would take more time than its answer.
    consumer: BaseConsumer,
    partitions: i32,
    start: Vec<i64>,
    /// Lives as long as the run.
    _mock: Option<MockCluster<'static, DefaultProducerContext>>,
}

impl Brokers {
    /// Those of a sink; none if rows go nowhere.
    pub(crate) fn of(sink: SinkKind, cluster: Option<&Cluster>) -> anyhow::Result<Option<Self>> {
        let (bootstrap, pids, mock) = match sink {
            SinkKind::Null => return Ok(None),
            SinkKind::Mock => {
                let mock = MockCluster::new(3)?;
                mock.create_topic(TOPIC, MOCK_PARTITIONS, 3)?;
                // Its brokers are threads of this process, which has nothing else to do.
                (mock.bootstrap_servers(), vec![std::process::id()], Some(mock))
            }
            SinkKind::Kafka => {
                let cluster = cluster.context("there is no Kafka")?;
                (cluster.bootstrap.clone(), cluster.pids.clone(), None)
            }
        };
        let consumer = consumer(&bootstrap)?;
        let partitions = partitions(&consumer)?;
        let mut brokers = Self {
            bootstrap,
            pids,
            consumer,
            partitions,
            start: Vec::new(),
            _mock: mock,
        };
        brokers.start = brokers.ends()?;
        Ok(Some(brokers))
    }

    /// As many requests as the relay's own producer has under way to a broker: with more, librdkafka's threads would never
    /// rest, and the floor would not be one.
    pub(crate) fn requests(&self) -> usize {
        let led_by_one = self.start.len() / self.bootstrap.split(',').count();
        led_by_one.saturating_sub(1).clamp(1, 5)
    }

    /// Processor time of the brokers.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.pids.iter().map(|pid| processes::cpu_time(*pid)).sum()
    }

    /// Records that arrived since the run began, those of the warm-up included.
    pub(crate) fn records(&self) -> anyhow::Result<u64> {
        let ends = self.ends()?;
        let new = ends.iter().zip(&self.start).map(|(end, start)| end - start);
        Ok(new.sum::<i64>().unsigned_abs())
    }

    /// Waits until so many records are there.
    pub(crate) async fn wait_for(&self, records: u64, timeout: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + timeout;
        let mut pace = Pace::to(records);
        loop {
            let there = self.records()?;
            if there >= records {
                return Ok(());
            }
            let now = Instant::now();
            ensure!(now < deadline, "{there} of {records} records arrived");
            sleep(pace.pause(there, now)).await;
        }
    }

    /// Waits until nothing arrives for so long.
    pub(crate) async fn wait_until_at_rest(&self, rest: Duration) -> anyhow::Result<()> {
        let mut records = self.records()?;
        loop {
            sleep(rest).await;
            let now = self.records()?;
            if now == records {
                return Ok(());
            }
            records = now;
        }
    }

    /// Reads everything back and counts it.
    pub(crate) fn read_back(&self, workload: &Workload) -> anyhow::Result<Arrived> {
        block_in_place(|| self.count(workload))
    }

    fn count(&self, workload: &Workload) -> anyhow::Result<Arrived> {
        let consumer = consumer(&self.bootstrap)?;
        let mut assignment = TopicPartitionList::new();
        let mut left = 0;
        for (partition, (start, end)) in (0..).zip(self.start.iter().zip(self.ends()?)) {
            assignment.add_partition_offset(TOPIC, partition, Offset::Offset(*start))?;
            left += end - start;
        }
        consumer.assign(&assignment)?;
        let mut tally = Tally::new(workload.rows, workload.keys);
        while left > 0 {
            let record = consumer.poll(READ_TIMEOUT);
            let record = record.with_context(|| format!("{left} records cannot be read back"))??;
            tally.note(record.payload().and_then(number_of));
            left -= 1;
        }
        Ok(tally.arrived())
    }

    /// Where each partition ends. By one request to each broker; for watermarks each partition would take two.
    fn ends(&self) -> anyhow::Result<Vec<i64>> {
        let mut partitions = TopicPartitionList::new();
        for partition in 0..self.partitions {
            // In place of a time: the end.
            partitions.add_partition_offset(TOPIC, partition, Offset::End)?;
        }
        let ends = block_in_place(|| self.consumer.offsets_for_times(partitions, REQUEST_TIMEOUT))?;
        let end = |partition: &TopicPartitionListElem<'_>| {
            partition.error()?;
            match partition.offset() {
                Offset::Offset(end) => Ok(end),
                other => bail!("partition {} ends at {other:?}", partition.partition()),
            }
        };
        ends.elements().iter().map(end).collect()
    }
}

/// How many partitions the topic has.
fn partitions(consumer: &BaseConsumer) -> anyhow::Result<i32> {
    let metadata = block_in_place(|| consumer.fetch_metadata(Some(TOPIC), REQUEST_TIMEOUT))?;
    let partitions = metadata.topics().iter().flat_map(MetadataTopic::partitions);
    Ok(i32::try_from(partitions.count())?)
}

fn consumer(bootstrap: &str) -> anyhow::Result<BaseConsumer> {
    let mut config = client(bootstrap);
    config.set("group.id", "bench").set("enable.auto.commit", "false");
    Ok(config.create()?)
}

fn client(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    config
}
