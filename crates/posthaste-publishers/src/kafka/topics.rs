//! What is known of the cluster's topics, so that what a broker would refuse is not even sent to it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, ConfigResourceResult, ResourceSpecifier};
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;

/// What is known of one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) partitions: usize,
    /// The fewest of them that one of its brokers leads.
    pub(super) led_by_one: usize,
    /// Most bytes of one request for it, if the cluster lets us know.
    pub(super) max_message_bytes: Option<usize>,
}

/// Kafka's default. Requests are kept below it where a topic's own is not known; no message is refused for it.
const MAX_MESSAGE_BYTES: usize = 1_048_588;

/// By how much requests get smaller when a topic refuses one: a limit that is not told is found in a few of them.
const REFUSED_DIVISOR: usize = 4;

/// After how long a topic is asked for again. One that was deleted, or whose limit was lowered, shows by a failure
/// before.
const TOPIC_FACTS_TTL: Duration = Duration::from_mins(5);

/// How often, and how long apart, is looked for a topic that is not there: a cluster that creates topics by itself does
/// so when it is asked for them, and says no the first time.
pub(super) const LOOKS: usize = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// How long a topic that was not there is not asked for again.
const ABSENT_FOR: Duration = Duration::from_secs(1);

/// How long an answer is as good as a new one.
const JUST_NOW: Duration = Duration::from_secs(1);

/// After how long a topic is asked for again when there was no answer.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Most topics of each sort that are remembered. Beyond it they are learnt anew.
const MAX_TOPICS: usize = 10_000;

#[derive(Default)]
pub(super) struct Topics(Mutex<State>);

#[derive(Default)]
struct State {
    known: HashMap<String, (Facts, Instant)>,
    absent: HashMap<String, (KafkaError, Instant)>,
    /// Below how many bytes requests are kept since the topic refused one of several messages as too large.
    refused: HashMap<String, usize>,
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
        state
            .known
            .get(topic)
            .is_some_and(|(_, since)| since.elapsed() < TOPIC_FACTS_TTL)
    }

    /// Whether the answer is as good as a new one.
    pub(super) fn was_just_asked_for(&self, topic: &str) -> bool {
        let state = self.lock();
        state
            .known
            .get(topic)
            .is_some_and(|(_, since)| since.elapsed() < JUST_NOW)
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
        // A limit above what was refused does not explain the refusal.
        let explains = |kept_below: &usize| facts.max_message_bytes.is_some_and(|limit| limit <= *kept_below);
        if state.refused.get(topic).is_some_and(explains) {
            state.refused.remove(topic);
        }
        if state.known.len() >= MAX_TOPICS {
            state.known.retain(|_, (_, since)| since.elapsed() < TOPIC_FACTS_TTL);
            if state.known.len() >= MAX_TOPICS {
                state.known.clear();
            }
        }
        state.known.insert(topic.to_owned(), (facts, Instant::now()));
    }

    pub(super) fn missed(&self, topic: &str, error: KafkaError) {
        let mut state = self.lock();
        if state.absent.len() >= MAX_TOPICS {
            state.absent.clear();
        }
        state.absent.insert(topic.to_owned(), (error, Instant::now()));
    }

    /// The topic refused a request of several messages, which had `bytes` at most. Returns below how many bytes requests
    /// are kept from now on, if that is news.
    pub(super) fn refused(&self, topic: &str, bytes: usize) -> Option<usize> {
        let mut state = self.lock();
        let keep_below = (bytes / REFUSED_DIVISOR).max(1);
        if state.refused.get(topic).is_some_and(|known| *known <= keep_below) {
            return None;
        }
        if state.refused.len() >= MAX_TOPICS {
            state.refused.clear();
        }
        state.refused.insert(topic.to_owned(), keep_below);
        Some(keep_below)
    }

    /// What was known is wrong: it is not used again before the cluster was asked.
    pub(super) fn forget(&self, topic: &str) {
        self.lock().known.remove(topic);
    }

    /// What was known may be wrong: it is asked for soon, and used until then.
    pub(super) fn ask_soon(&self, topic: &str) {
        self.age(topic, TOPIC_FACTS_TTL);
    }

    /// There was no answer: it is asked for again after a while.
    pub(super) fn ask_later(&self, topic: &str) {
        self.age(topic, TOPIC_FACTS_TTL.saturating_sub(ASK_AGAIN_AFTER));
    }

    fn age(&self, topic: &str, age: Duration) {
        let Some(since) = Instant::now().checked_sub(age) else {
            return self.forget(topic);
        };
        if let Some((_, known_since)) = self.lock().known.get_mut(topic) {
            *known_since = since;
        }
    }

    /// The smallest limit of all topics, known or guessed.
    pub(super) fn smallest_limit(&self) -> usize {
        let state = self.lock();
        let known = state.known.values();
        let limits = known.map(|(facts, _)| facts.max_message_bytes.unwrap_or(MAX_MESSAGE_BYTES));
        let guessed = state.refused.values().copied();
        limits.chain(guessed).min().unwrap_or(MAX_MESSAGE_BYTES)
    }

    /// How many partitions of all topics a broker leads at least; none if no topic is known.
    pub(super) fn led_by_one(&self) -> Option<usize> {
        let state = self.lock();
        let known = state.known.values().map(|(facts, _)| facts.led_by_one);
        known.reduce(usize::saturating_add)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a topic's partitions are: how many there are, and the fewest that one of its brokers leads. Blocks.
pub(super) fn partitions<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    looks: usize,
    within: Duration,
) -> Result<(usize, usize), KafkaError> {
    let mut looked = 0;
    loop {
        looked += 1;
        let metadata = client.fetch_metadata(Some(topic), within)?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let unknown = RDKafkaErrorCode::UnknownTopicOrPartition;
        let error = match found {
            Some(found) => match found.error() {
                None => return Ok((found.partitions().len(), led_by_one(found))),
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

fn led_by_one(topic: &MetadataTopic) -> usize {
    let mut led: HashMap<i32, usize> = HashMap::new();
    // One that has no leader at the moment says nothing about brokers.
    for partition in topic.partitions().iter().filter(|partition| partition.leader() >= 0) {
        *led.entry(partition.leader()).or_default() += 1;
    }
    led.into_values().min().unwrap_or_default()
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
    let limit = |(topic, answer): (&String, ConfigResourceResult)| {
        let resource = answer.ok()?;
        let entry = resource.get("max.message.bytes")?;
        Some((topic.clone(), entry.value.as_ref()?.parse().ok()?))
    };
    // Without an answer there is no limit: it is for the brokers to say what is too large.
    topics.iter().zip(answers).filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(max_message_bytes: Option<usize>) -> Facts {
        Facts {
            partitions: 1,
            led_by_one: 1,
            max_message_bytes,
        }
    }

    #[test]
    fn a_limit_that_is_not_known_keeps_requests_small_and_is_no_limit() {
        let topics = Topics::default();
        assert_eq!(topics.smallest_limit(), MAX_MESSAGE_BYTES);
        topics.learnt("large", facts(Some(5_000_000)));
        assert_eq!(topics.smallest_limit(), 5_000_000);
        topics.learnt("unknown", facts(None));
        assert_eq!(topics.smallest_limit(), MAX_MESSAGE_BYTES);
        assert_eq!(topics.facts("unknown").unwrap().max_message_bytes, None);
    }

    #[test]
    fn requests_get_smaller_with_each_that_is_refused_until_the_limit_is_known() {
        let topics = Topics::default();
        topics.learnt("t", facts(None));
        assert_eq!(topics.refused("t", 1_000_000), Some(250_000));
        assert_eq!(
            topics.refused("t", 1_000_000),
            None,
            "told once, not for each message of it"
        );
        topics.learnt("t", facts(None));
        assert_eq!(topics.smallest_limit(), 250_000);
        topics.learnt("t", facts(Some(500_000)));
        assert_eq!(topics.smallest_limit(), 250_000, "it was refused nevertheless");
        topics.learnt("t", facts(Some(2_000)));
        topics.learnt("t", facts(Some(500_000)));
        assert_eq!(topics.smallest_limit(), 500_000, "raised again");
        assert_eq!(topics.refused("t", 2), Some(1));
        assert_eq!(topics.refused("t", 1), None);
    }

    #[test]
    fn what_may_be_wrong_is_used_until_it_was_asked_for() {
        let topics = Topics::default();
        topics.learnt("t", facts(None));
        assert!(topics.is_fresh("t") && topics.was_just_asked_for("t"));
        topics.ask_soon("t");
        assert!(!topics.is_fresh("t") && !topics.was_just_asked_for("t"));
        assert_eq!(topics.facts("t").map(|facts| facts.partitions), Some(1));
        topics.ask_later("t");
        assert!(topics.is_fresh("t"));
        topics.forget("t");
        assert_eq!(topics.facts("t"), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let topics = Topics::default();
        for n in 0..25_000 {
            topics.learnt(&format!("known-{n}"), facts(None));
            topics.missed(&format!("absent-{n}"), KafkaError::Canceled);
            topics.refused(&format!("refused-{n}"), 1_000);
        }
        let state = topics.lock();
        assert!(state.known.len() <= MAX_TOPICS && state.absent.len() <= MAX_TOPICS);
        assert!(state.refused.len() <= MAX_TOPICS);
    }
}
