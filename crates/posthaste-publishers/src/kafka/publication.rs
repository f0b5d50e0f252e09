//! One batch on its way, from routing to the last answer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_core::publisher::{Batch, PublishError, Report};

use super::batch::{End, Ongoing};
use super::hand_over::{Desk, Patience, Place, places};
use super::options::KafkaOptions;
use super::producer::{Producers, Role};
use super::publisher::KafkaPublisher;
use super::{route, warmth};

/// How long what was taken back may take to be reported.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// How many messages are handed over before other tasks get their turn.
const TURN: usize = 256;

pub(super) struct Publication<'a> {
    publisher: &'a KafkaPublisher,
    batch: &'a Batch,
    places: Vec<Place>,
    /// How many messages each lane has.
    lengths: Vec<usize>,
    topics: Vec<Result<Cow<'a, str>, PublishError>>,
    unusable: HashMap<String, PublishError>,
    ongoing: Arc<Ongoing>,
}

/// How a lane is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It has one message.
    Alone,
    /// In one go.
    Together,
    /// The first message, and the rest once that is answered.
    HeadFirst,
    /// The first message only; the rest with the next batch.
    HeadOnly,
}

impl Way {
    fn role(self) -> Role {
        match self {
            Self::Alone | Self::HeadOnly => Role::Lone,
            Self::Together | Self::HeadFirst => Role::Lanes,
        }
    }
}

/// If the batch is abandoned, its producers take back what they hold of it: it must not be sent long after its lease.
struct TakeBack<'a> {
    ongoing: &'a Ongoing,
    producers: &'a Producers<'a>,
}

impl TakeBack<'_> {
    fn now(&self) {
        for role in [Role::Lone, Role::Lanes] {
            if self.ongoing.awaits(role) {
                self.producers.replace(role);
            }
        }
    }
}

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        self.now();
    }
}

impl<'a> Publication<'a> {
    /// Routes the messages, and learns of their topics what is not known yet.
    pub(super) async fn begin(publisher: &'a KafkaPublisher, batch: &'a Batch, report: Report) -> Self {
        let (places, ids) = places(&batch.deliveries);
        let lengths = ids.iter().map(Vec::len).collect();
        let routes = &publisher.options.routes;
        let deliveries = batch.deliveries.iter();
        let topics: Vec<_> = deliveries
            .map(|delivery| route::topic(routes, &delivery.message))
            .collect();
        let wanted = topics
            .iter()
            .flatten()
            .map(|topic| topic.clone().into_owned())
            .collect();
        Self {
            unusable: publisher.learn(wanted).await,
            publisher,
            batch,
            places,
            lengths,
            topics,
            ongoing: Arc::new(Ongoing::new(ids, report)),
        }
    }

    /// Hands everything over and waits for the answers; afterwards every message has its outcome.
    pub(super) async fn run(self) {
        let several = self.lengths.iter().any(|length| *length > 1);
        let producers = match self.publisher.producers(several) {
            Ok(producers) => producers,
            Err(error) => {
                let failure = self.publisher.observer.failure(&error, None);
                for at in &self.places {
                    self.ongoing.end(at.lane, at.place, End::Failed(failure.clone()));
                }
                return;
            }
        };
        let take_back = TakeBack {
            ongoing: &self.ongoing,
            producers: &producers,
        };
        let options = &self.publisher.options;
        let desk = Desk {
            batch: self.batch,
            ongoing: &self.ongoing,
            observer: &self.publisher.observer,
            format: options.format,
            id_header: options.id_header.as_deref(),
            patience: Patience::new(options.answer_within),
        };
        let begun = Instant::now();
        let rest = self.hand_over_heads(&desk, &producers).await;
        self.hand_over_rest(rest, &desk, &producers).await;
        if !self.answered(begun).await {
            let waited = options.answer_within.min(begun.elapsed());
            self.ongoing.give_up(self.publisher.observer.silence(waited));
            take_back.now();
            // What is not reported by then counts as unknown to the relay.
            let _ = tokio::time::timeout(LAST_REPORTS, self.ongoing.over()).await;
        }
    }

    /// Hands over what need not wait for anything; returns what must wait for the head of its lane.
    async fn hand_over_heads(&self, desk: &Desk<'_>, producers: &Producers<'_>) -> Vec<usize> {
        let mut ways: Vec<Option<Way>> = vec![None; self.lengths.len()];
        let mut rest = Vec::new();
        for (number, at) in self.places.iter().enumerate() {
            let topic = match self.topic(number) {
                Ok(topic) => topic,
                Err(error) => {
                    self.ongoing.end(at.lane, at.place, End::Failed(error));
                    continue;
                }
            };
            let way = *ways[at.lane].get_or_insert_with(|| self.way(number, topic, producers));
            match (way, at.place) {
                (Way::HeadFirst, 1..) => rest.push(number),
                (Way::HeadOnly, 1..) => self.ongoing.end(at.lane, at.place, End::NotHandedOver),
                _ => self.hand_over(number, topic, way, desk, producers).await,
            }
            if number % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        rest
    }

    async fn hand_over_rest(&self, rest: Vec<usize>, desk: &Desk<'_>, producers: &Producers<'_>) {
        if rest.is_empty() {
            return;
        }
        let lanes: Vec<usize> = rest.iter().map(|&number| self.places[number].lane).collect();
        let heads = self.ongoing.heads_answered(&lanes);
        let answered = tokio::time::timeout(self.publisher.options.answer_within, heads).await;
        for number in rest {
            let at = self.places[number];
            match self.topic(number) {
                Ok(topic) if answered.is_ok() => self.hand_over(number, topic, Way::HeadFirst, desk, producers).await,
                _ => self.ongoing.end(at.lane, at.place, End::NotHandedOver),
            }
        }
    }

    async fn hand_over(&self, number: usize, topic: &str, way: Way, desk: &Desk<'_>, producers: &Producers<'_>) {
        let (delivery, at, role) = (&self.batch.deliveries[number], self.places[number], way.role());
        self.ongoing.goes_by(at.lane, role);
        let lane = delivery.message.lane().filter(|_| at.place == 0 && role == Role::Lanes);
        let warms = lane.map(|(topic, key)| warmth::lane(topic, key));
        let limit = self.publisher.limit(topic);
        desk.hand_over(delivery, at, topic, limit, producers.of(role), warms)
            .await;
    }

    fn topic(&self, number: usize) -> Result<&str, PublishError> {
        let topic = self.topics[number].as_deref().map_err(Clone::clone)?;
        self.unusable.get(topic).map_or(Ok(topic), |error| Err(error.clone()))
    }

    fn way(&self, number: usize, topic: &str, producers: &Producers<'_>) -> Way {
        let length = self.lengths[self.places[number].lane];
        let lane = self.batch.deliveries[number].message.lane();
        let Some((own_topic, key)) = lane.filter(|_| length > 1) else {
            return Way::Alone;
        };
        let warmth = &self.publisher.warmth;
        let Some(generation) = producers.for_lanes().filter(|_| !warmth.is_doubted(topic)) else {
            return Way::HeadOnly;
        };
        let partitions = self.publisher.topics.facts(topic).map_or(0, |facts| facts.partitions);
        if warmth.is_warm(generation, warmth::lane(own_topic, key), topic, partitions) {
            Way::Together
        } else {
            Way::HeadFirst
        }
    }

    /// Waits for the answers, as long as any come; whether all of them came.
    async fn answered(&self, begun: Instant) -> bool {
        let latest = begun + KafkaOptions::delivery_timeout(&self.publisher.config);
        loop {
            let silent = self.ongoing.last_answer().max(begun) + self.publisher.options.answer_within;
            let until = silent.min(latest);
            if tokio::time::timeout_at(until.into(), self.ongoing.over()).await.is_ok() {
                return true;
            }
            if self.ongoing.last_answer().max(begun) + self.publisher.options.answer_within <= silent || until == latest
            {
                return false;
            }
        }
    }
}
