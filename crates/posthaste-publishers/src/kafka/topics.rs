//! What is known of the cluster's topics, so that what a broker would refuse is not even sent to it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// What is known of one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) partitions: usize,
    /// Most bytes of one request for it, if the cluster lets us know.
    pub(super) max_message_bytes: Option<usize>,
}

/// Kafka's default.
const MAX_MESSAGE_BYTES: usize = 1_048_588;

/// After how long a topic is asked for again. One that was deleted, or whose limit was lowered, shows by a failure
/// before.
const LASTS: Duration = Duration::from_mins(5);

/// How often, and how long apart, is looked for a topic that is not there: a cluster that creates topics by itself does
/// so when it is asked for them, and says no the first time.
pub(super) const LOOKS: usize = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// How long a topic that was not there is not asked for again.
const ABSENT_FOR: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Topics(Mutex<State>);

#[derive(Default)]
struct State {
    known: HashMap<String, (Facts, Instant)>,
    absent: HashMap<String, (KafkaError, Instant)>,
}

/// Whether a topic that cannot be used is worth another question.
pub(super) enum Absence {
    /// It has just been asked for.
    Recent(KafkaError),
    /// It has been missed before.
    Long,
    /// It was never asked for.
    Unknown,
}

impl Topics {
    /// What is known of a topic, however long.
    pub(super) fn facts(&self, topic: &str) -> Option<Facts> {
        self.lock().known.get(topic).map(|(facts, _)| *facts)
    }

    /// Whether it need not be asked for again.
    pub(super) fn is_fresh(&self, topic: &str) -> bool {
        let state = self.lock();
        state.known.get(topic).is_some_and(|(_, since)| since.elapsed() < LASTS)
    }

    pub(super) fn absence(&self, topic: &str) -> Absence {
        match self.lock().absent.get(topic) {
            Some((error, since)) if since.elapsed() < ABSENT_FOR => Absence::Recent(error.clone()),
            Some(_) => Absence::Long,
            None => Absence::Unknown,
        }
    }

    pub(super) fn learnt(&self, topic: &str, facts: Facts) {
        let mut state = self.lock();
        state.absent.remove(topic);
        state.known.insert(topic.to_owned(), (facts, Instant::now()));
    }

    pub(super) fn missed(&self, topic: &str, error: KafkaError) {
        let mut state = self.lock();
        state.absent.insert(topic.to_owned(), (error, Instant::now()));
    }

    pub(super) fn forget(&self, topic: &str) {
        self.lock().known.remove(topic);
    }

    /// The smallest limit of all topics.
    pub(super) fn smallest_limit(&self) -> usize {
        let state = self.lock();
        let limits = state.known.values().filter_map(|(facts, _)| facts.max_message_bytes);
        limits.min().unwrap_or(MAX_MESSAGE_BYTES)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many partitions a topic has. Blocks.
pub(super) fn partitions<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    looks: usize,
    within: Duration,
) -> Result<usize, KafkaError> {
    let mut looked = 0;
    loop {
        looked += 1;
        let metadata = client.fetch_metadata(Some(topic), within)?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let unknown = RDKafkaErrorCode::UnknownTopicOrPartition;
        let error = match found {
            Some(found) => match found.error() {
                None => return Ok(found.partitions().len()),
                Some(error) => RDKafkaErrorCode::from(error),
            },
            None => unknown,
        };
        let may_come = error == unknown || error == RDKafkaErrorCode::LeaderNotAvailable;
        if !may_come || looked >= looks {
            return Err(KafkaError::MetadataFetch(error));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// The largest request each topic takes, as far as the cluster lets us ask.
pub(super) async fn limits<C: ClientContext + 'static>(
    admin: &AdminClient<C>,
    topics: &[String],
    within: Duration,
) -> HashMap<String, usize> {
    let resources: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let options = AdminOptions::new().request_timeout(Some(within));
    let answers = match admin.describe_configs(&resources, &options).await {
        Ok(answers) => answers,
        Err(error) => {
            tracing::debug!(%error, "topics' limits are not known");
            Vec::new()
        }
    };
    let mut limits: HashMap<String, usize> = topics.iter().map(|topic| (topic.clone(), MAX_MESSAGE_BYTES)).collect();
    for (topic, answer) in topics.iter().zip(answers) {
        let limit = answer.ok().and_then(|resource| {
            let entry = resource.get("max.message.bytes")?;
            entry.value.as_ref()?.parse().ok()
        });
        if let Some(limit) = limit {
            limits.insert(topic.clone(), limit);
        }
    }
    limits
}
