//! One batch on its way, from routing to the last answer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::FuturesUnordered;
use futures::{StreamExt, poll};
use posthaste_core::publisher::{Batch, Delivery, Place, PublishError, Report};
use posthaste_kafka::event;

use super::batch::{End, Ongoing};
use super::client::KafkaClient;
use super::hand_over::{LanePlace, RecordSender};
use super::producer::Producers;
use super::role::Role;
use super::{acks, route};

/// How long what was taken back may take to be reported.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// How much longer than it should the producer for single messages may take to give one up by itself.
const EXPIRY_SLACK: Duration = Duration::from_secs(3);

pub(super) struct Publication<'a> {
    publisher: &'a KafkaClient,
    batch: &'a Batch,
    /// The numbers of each lane's messages within the batch.
    lanes: Vec<Vec<usize>>,
    topics: Vec<Result<Cow<'a, str>, PublishError>>,
    unusable: HashMap<String, PublishError>,
    ongoing: Arc<Ongoing>,
}

/// How the next messages of a lane are handed over, when all those before them are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendMode {
    /// One, which nothing of the lane follows before its answer.
    Alone,
    /// All that go to the same topic, in one go.
    Together,
    /// One, which gets the producer for lanes known to the partition.
    HeadFirst,
}

impl SendMode {
    fn role(self) -> Role {
        match self {
            Self::Alone => Role::Lone,
            Self::Together | Self::HeadFirst => Role::Lanes,
        }
    }
}

/// If the batch is abandoned, its producers take back what they hold of it: it must not be sent long after its lease.
struct TakeBack<'a> {
    ongoing: &'a Ongoing,
    producers: &'a Producers<'a>,
}

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        self.ongoing.keep_back();
        for role in [Role::Lone, Role::Lanes] {
            if self.ongoing.awaits(role) {
                self.producers.replace(role);
            }
        }
    }
}

impl<'a> Publication<'a> {
    /// Routes the messages, and learns of their topics what is not known yet.
    pub(super) async fn begin(publisher: &'a KafkaClient, batch: &'a Batch, report: Report) -> Self {
        let (lanes, places) = lanes(&batch.deliveries);
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
            lanes,
            topics,
            ongoing: Arc::new(Ongoing::new(places, report)),
        }
    }

    /// Hands everything over and waits for the answers; afterwards every message has its outcome.
    pub(super) async fn run(self) {
        let several = self.lanes.iter().any(|lane| lane.len() > 1);
        let producers = match self.publisher.producers(several) {
            Ok(producers) => producers,
            Err(error) => {
                let failure = self.publisher.observer.failure(&error, None);
                for (lane, numbers) in self.lanes.iter().enumerate() {
                    for place in 0..numbers.len() {
                        self.ongoing.end(lane, place, End::Failed(failure.clone()));
                    }
                }
                return;
            }
        };
        let _take_back = TakeBack {
            ongoing: &self.ongoing,
            producers: &producers,
        };
        let sender = RecordSender::new(self.publisher, self.batch, &self.ongoing);
        tokio::join!(self.hand_over(&sender, &producers), self.watch(&producers));
    }

    /// Hands over each lane as its own answers allow; none waits for another one's.
    async fn hand_over(&self, sender: &RecordSender<'_>, producers: &Producers<'_>) {
        let mut waiting = FuturesUnordered::new();
        for (lane, numbers) in self.lanes.iter().enumerate() {
            if numbers.len() == 1 {
                self.hand_over_lane(lane, sender, producers).await;
                continue;
            }
            let mut handing_over = Box::pin(self.hand_over_lane(lane, sender, producers));
            if poll!(&mut handing_over).is_pending() {
                waiting.push(handing_over);
            }
        }
        while waiting.next().await.is_some() {}
    }

    async fn hand_over_lane(&self, lane: usize, sender: &RecordSender<'_>, producers: &Producers<'_>) {
        let numbers = &self.lanes[lane];
        let mut next = 0;
        while next < numbers.len() {
            if next > 0 && !self.ongoing.goes_on_after(lane, next).await {
                break;
            }
            let topic = match self.topic(numbers[next]) {
                Ok(topic) => topic,
                Err(error) => {
                    self.ongoing.end(lane, next, End::Failed(error));
                    break;
                }
            };
            // Another topic has another partition, whose answers say nothing of this one's: only messages to the same
            // one are on their way side by side.
            let same = |number: &&usize| self.topic(**number).as_ref() == Ok(&topic);
            let run = numbers[next..].iter().take_while(same).count();
            let name = self.lane_name(numbers[next], topic);
            let mode = self.send_mode(name, topic, run, producers);
            let count = if mode == SendMode::Together { run } else { 1 };
            for (place, number) in numbers.iter().enumerate().skip(next).take(count) {
                let delivery = &self.batch.deliveries[*number];
                // Where a lane goes is worth remembering where more of it is to come.
                let known_by = name.filter(|_| run > 1 && place == next);
                let place = LanePlace { lane, place };
                sender
                    .hand_over(delivery, place, topic, producers.of(mode.role()), known_by)
                    .await;
            }
            next += count;
        }
        for place in next..numbers.len() {
            self.ongoing.end(lane, place, End::NotHandedOver);
        }
    }

    fn topic(&self, number: usize) -> Result<&str, PublishError> {
        let topic = self.topics[number].as_deref().map_err(Clone::clone)?;
        self.unusable.get(topic).map_or(Ok(topic), |error| Err(error.clone()))
    }

    /// The lane as brokers know it: by the topic that is written to, and the record's key.
    fn lane_name(&self, number: usize, topic: &str) -> Option<u64> {
        let key = event::key(&self.batch.deliveries[number].message)?;
        Some(acks::lane(topic, key))
    }

    fn send_mode(&self, lane: Option<u64>, topic: &str, run: usize, producers: &Producers<'_>) -> SendMode {
        let acks = &self.publisher.acks;
        let (Some(lane), Some(generation)) = (lane.filter(|_| run > 1), producers.for_lanes()) else {
            return SendMode::Alone;
        };
        if acks.is_doubted(topic, lane) {
            return SendMode::Alone;
        }
        let partitions = self.publisher.topics.facts(topic).map_or(0, |facts| facts.partitions);
        if acks.is_warm(generation, lane, topic, partitions) {
            SendMode::Together
        } else {
            SendMode::HeadFirst
        }
    }

    /// Waits for the answers, and takes back what is not answered.
    ///
    /// The producer for lanes never gives up by itself, so it is replaced as soon as one of them waits too long. The other
    /// one does, message by message, and stays.
    async fn watch(&self, producers: &Producers<'_>) {
        let within = self.publisher.options.effective_answer_within();
        let mut watched = [
            (Role::Lanes, within, None::<Instant>),
            (Role::Lone, within + EXPIRY_SLACK, None),
        ];
        loop {
            let now = Instant::now();
            let mut next = now + within;
            for (role, limit, replaced) in &mut watched {
                let Some(since) = self.ongoing.silent_since(*role) else {
                    continue;
                };
                let deadline = replaced.map_or(since + *limit, |at| at + LAST_REPORTS);
                if now < deadline {
                    next = next.min(deadline);
                } else if replaced.is_none() {
                    let why = |place| self.silence(place);
                    self.ongoing
                        .give_up(*role, now.checked_sub(*limit).unwrap_or(since), why);
                    producers.replace(*role);
                    *replaced = Some(now);
                    next = next.min(now + LAST_REPORTS);
                } else {
                    self.ongoing.lose(*role);
                }
            }
            if tokio::time::timeout_at(next.into(), self.ongoing.over()).await.is_ok() {
                return;
            }
        }
    }

    /// The failure of a message without an answer.
    fn silence(&self, place: Place) -> PublishError {
        let deliveries = &self.batch.deliveries;
        let number = deliveries.iter().position(|delivery| delivery.place == place);
        let topic = number.and_then(|number| self.topic(number).ok());
        self.publisher.observer.silence(topic)
    }
}

/// The numbers of each lane's messages within the batch, and their places in what is reported. A message without a key is a lane of its own.
fn lanes(deliveries: &[Delivery]) -> (Vec<Vec<usize>>, Vec<Vec<Place>>) {
    let mut lanes: Vec<Vec<usize>> = Vec::new();
    let mut by_name = HashMap::new();
    for (number, delivery) in deliveries.iter().enumerate() {
        let next = lanes.len();
        let lane = match delivery.message.lane() {
            Some(name) => *by_name.entry(name).or_insert(next),
            None => next,
        };
        if lane == next {
            lanes.push(Vec::new());
        }
        lanes[lane].push(number);
    }
    let place = |number: &usize| deliveries[*number].place;
    let places = lanes.iter().map(|lane| lane.iter().map(place).collect()).collect();
    (lanes, places)
}
