//! One batch on its way, from routing to the last answer.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;
use posthaste_core::publisher::{Batch, Delivery, PublishError, Report};
use posthaste_kafka::event;

use super::acks;
use super::answer_watch::{AnswerWatch, Destinations};
use super::batch::{End, Ongoing, Turn, Via};
use super::client::KafkaClient;
use super::hand_over::{Handing, Obstacle, RecordSender};
use super::lanes::{SortedLanes, Targets};
use super::producer::Producers;
use super::role::Role;

/// How many messages are handed over before other tasks get their turn.
const YIELD_AFTER: u32 = 256;

/// Hands a batch over and waits for the answers; afterwards every message has its outcome.
pub(super) async fn run(publisher: &KafkaClient, batch: Batch, report: Report) {
    let mut sorted = SortedLanes::new(&batch.deliveries);
    // Lined up behind those before it, before anything is waited for.
    let entry = Entry::new(publisher, &batch, &mut sorted, report);
    let ongoing = &entry.ongoing;
    let publication = Publication::new(publisher, &batch, sorted, &entry).await;
    let producers = match publisher.producers(publication.needs_lanes(), publication.is_light) {
        Ok(producers) => producers,
        Err(error) => {
            let failure = publisher.observer.failure(&error, None);
            for position in (0..).take(batch.deliveries.len()) {
                ongoing.end(position, End::failed(failure.clone()));
            }
            return ongoing.over().await;
        }
    };
    let _take_back = TakeBack {
        ongoing,
        producers: &producers,
    };
    let mut watch = AnswerWatch::new(publisher, ongoing, &producers, publication.destinations());
    publication.run(&producers, &mut watch).await;
    // librdkafka has a copy of each, and the answers may take longer than everything before.
    drop(batch);
    watch.run().await;
}

/// What of a batch is still to be handed over.
struct Publication<'a> {
    publisher: &'a KafkaClient,
    batch: &'a Batch,
    sorted: SortedLanes,
    targets: Targets<'a>,
    unusable: HashMap<String, PublishError>,
    /// Whether batches share lanes, so that each message with a key may be followed by others.
    pipelined: bool,
    /// Whether little is on its way, and nothing of its lanes, so that messages need not wait for company.
    is_light: bool,
    ongoing: &'a Arc<Ongoing>,
    slot: usize,
}

/// A batch's place among those on their way. If the batch is abandoned, what no producer was given is kept back.
struct Entry<'a> {
    publisher: &'a KafkaClient,
    ongoing: Arc<Ongoing>,
    slot: usize,
    /// Whether a lane of it stands behind an earlier batch.
    is_behind: bool,
}

impl<'a> Entry<'a> {
    fn new(publisher: &'a KafkaClient, batch: &Batch, sorted: &mut SortedLanes, report: Report) -> Self {
        let names = std::mem::take(&mut sorted.names);
        let numbers = sorted.order.iter();
        let places = numbers.map(|number| batch.deliveries[*number as usize].place);
        let ongoing = Ongoing::new(places, &sorted.lanes, names, report);
        let slot = publisher.in_flight.enter(&ongoing);
        let is_behind = publisher.in_flight.line_up(&ongoing);
        Self {
            publisher,
            ongoing,
            slot,
            is_behind,
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        if self.ongoing.close() {
            self.publisher.in_flight.leave(self.slot);
        }
    }
}

/// How the next messages of a lane are handed over.
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
        for role in [Role::Lone, Role::Lanes] {
            if self.ongoing.awaits(role) {
                self.producers.replace(role);
            }
        }
    }
}

/// What holds for all messages of a batch that go to one topic.
struct Target<'a> {
    topic: Result<&'a str, PublishError>,
    limit: Option<usize>,
    /// Whether lanes go out at once, whichever partition they go to.
    is_warm: bool,
}

/// What a lane waits for.
enum Pause {
    /// Its own progress.
    Progress,
    /// Room in the producer's queue.
    Room,
    /// What is known of the topic's limit, for a message of so many bytes.
    Limit(usize),
}

impl<'a> Publication<'a> {
    /// Learns of the batch's topics what is not known yet.
    async fn new(publisher: &'a KafkaClient, batch: &'a Batch, sorted: SortedLanes, entry: &'a Entry<'_>) -> Self {
        let targets = Targets::new(&publisher.options.routes, &batch.deliveries);
        let topics = targets.topics.iter().flatten();
        let wanted: BTreeSet<String> = topics.map(|topic| topic.clone().into_owned()).collect();
        // A lane that is waited for goes on behind what is ahead of it: to wait for each answer would hold it up for good.
        let is_light = !entry.is_behind && publisher.in_flight.is_light(&entry.ongoing);
        Self {
            unusable: publisher.learn(wanted).await,
            pipelined: publisher.in_flight.is_pipelined(),
            is_light,
            publisher,
            batch,
            sorted,
            targets,
            ongoing: &entry.ongoing,
            slot: entry.slot,
        }
    }

    /// Whether messages of one lane go out side by side.
    fn needs_lanes(&self) -> bool {
        (self.pipelined && !self.is_light) || self.sorted.lanes.iter().any(|lane| lane.len() > 1)
    }

    fn destinations(&self) -> Destinations {
        let usable = |topic: &str| (!self.unusable.contains_key(topic)).then(|| topic.to_owned());
        let topics = self.targets.topics.iter();
        let numbers = self.sorted.order.iter();
        Destinations {
            topics: topics.map(|topic| usable(topic.as_deref().ok()?)).collect(),
            of: numbers.map(|number| self.targets.of[*number as usize]).collect(),
        }
    }

    /// Hands everything over. Answers to what is handed over may be what the rest waits for.
    async fn run(self, producers: &Producers<'_>, watch: &mut AnswerWatch<'_>) {
        let sender = RecordSender::new(self.publisher, self.batch, self.ongoing, self.slot);
        let targets = self.targets(producers);
        let handing_over = std::pin::pin!(self.hand_over(&sender, producers, &targets));
        let watching = std::pin::pin!(watch.run());
        if let Either::Right(((), handing_over)) = select(handing_over, watching).await {
            handing_over.await;
        }
    }

    fn targets(&self, producers: &Producers<'_>) -> Vec<Target<'_>> {
        let mut targets = Vec::with_capacity(self.targets.topics.len());
        for routed in &self.targets.topics {
            let topic = match routed {
                Ok(topic) => match self.unusable.get(&**topic) {
                    Some(error) => Err(error.clone()),
                    None => Ok(&**topic),
                },
                Err(error) => Err(error.clone()),
            };
            let (mut limit, mut is_warm) = (None, false);
            if let Ok(topic) = topic {
                let partitions = self.partitions(topic);
                limit = self.publisher.known_limit(topic);
                is_warm = producers
                    .for_lanes()
                    .is_some_and(|generation| self.publisher.acks.is_all_warm(generation, topic, partitions));
            }
            targets.push(Target { topic, limit, is_warm });
        }
        targets
    }

    fn partitions(&self, topic: &str) -> usize {
        self.publisher.topics.facts(topic).map_or(0, |facts| facts.partitions)
    }

    /// Hands over each lane as its own answers allow; none waits for another one's.
    async fn hand_over(&self, sender: &RecordSender<'a>, producers: &Producers<'_>, targets: &[Target<'_>]) {
        let mut waiting = FuturesUnordered::new();
        let mut yielded = 0;
        for (lane, positions) in (0..).zip(&self.sorted.lanes) {
            let mut next = positions.start;
            if let Some(pause) = self.hand_over_now(lane, &mut next, None, sender, producers, targets) {
                waiting.push(self.hand_over_later(lane, next, pause, sender, producers, targets));
            }
            if positions.end - yielded >= YIELD_AFTER {
                yielded = positions.end;
                tokio::task::yield_now().await;
                sender.look_at_clock();
            }
        }
        while waiting.next().await.is_some() {}
    }

    /// Hands over the rest of a lane that has to wait.
    async fn hand_over_later(
        &self,
        lane: u32,
        mut next: u32,
        mut pause: Pause,
        sender: &RecordSender<'a>,
        producers: &Producers<'_>,
        targets: &[Target<'_>],
    ) {
        let mut room = None;
        loop {
            let mut cleared = None;
            let before = next;
            match pause {
                Pause::Progress => {}
                Pause::Room => {
                    if !room.get_or_insert_with(|| sender.wait_for_room()).a_little().await {
                        self.ongoing.end(next, End::NotHandedOver);
                    }
                }
                Pause::Limit(bytes) => {
                    let topic = targets[self.target(next)].topic.as_ref();
                    match sender.judge_size(topic.map_or("", |topic| topic), bytes).await {
                        Some(end) => self.ongoing.end(next, end),
                        None => cleared = Some(next),
                    }
                }
            }
            let mut progress = std::pin::pin!(self.ongoing.progress(lane).notified());
            // Registered before the look, so that no change in between is missed.
            progress.as_mut().enable();
            sender.look_at_clock();
            match self.hand_over_now(lane, &mut next, cleared, sender, producers, targets) {
                None => return,
                Some(found) => pause = found,
            }
            if next > before {
                room = None;
            }
            if let Pause::Progress = pause {
                progress.await;
            }
        }
    }

    /// Hands over what may go of a lane, from `next`; returns what the rest waits for, if there is any. Of a message that
    /// is `cleared` the size is known to be no hindrance.
    fn hand_over_now(
        &self,
        lane: u32,
        next: &mut u32,
        cleared: Option<u32>,
        sender: &RecordSender<'a>,
        producers: &Producers<'_>,
        targets: &[Target<'_>],
    ) -> Option<Pause> {
        let end = self.sorted.lanes[lane as usize].end;
        while *next < end {
            let target = &targets[self.target(*next)];
            let topic = match &target.topic {
                Ok(topic) => *topic,
                Err(error) => {
                    // Those before it may still be on their way.
                    match self.ongoing.turn(lane, None) {
                        Turn::Later => return Some(Pause::Progress),
                        Turn::Now => self.ongoing.end(*next, End::failed(error.clone())),
                        Turn::Never => {}
                    }
                    break;
                }
            };
            // Another topic has another partition, whose answers say nothing of this one's: only messages to the same
            // one are on their way side by side.
            let number = self.target(*next);
            let run = (*next..end)
                .take_while(|position| self.target(*position) == number)
                .count();
            let name = self.lane_name(lane, *next, topic, run);
            let mode = if self.is_light && run == 1 {
                SendMode::Alone
            } else {
                self.send_mode(name, topic, target, producers)
            };
            let together = mode == SendMode::Together;
            let via = name.filter(|_| together).zip(producers.for_lanes());
            let via = via.map(|(name, generation)| Via { generation, name });
            match self.ongoing.turn(lane, via) {
                Turn::Now => {}
                Turn::Later => return Some(Pause::Progress),
                Turn::Never => break,
            }
            let count = if together { run } else { 1 };
            // Where a lane goes is worth remembering where more of it is to come.
            let mut known_by = name;
            for _ in 0..count {
                let handing = Handing {
                    delivery: self.delivery(*next),
                    position: *next,
                    topic,
                    limit: target.limit.filter(|_| cleared != Some(*next)),
                    producer: producers.of(mode.role()),
                    via,
                    known_by: known_by.take(),
                };
                match sender.hand_over(&handing) {
                    Ok(()) => *next += 1,
                    Err(Obstacle::Ended) => break,
                    Err(Obstacle::Full) => return Some(Pause::Room),
                    Err(Obstacle::AboveLimit(bytes)) => return Some(Pause::Limit(bytes)),
                }
            }
        }
        if *next == end {
            self.ongoing.sent(lane);
        }
        for position in *next..end {
            self.ongoing.end(position, End::NotHandedOver);
        }
        None
    }

    fn delivery(&self, position: u32) -> &'a Delivery {
        &self.batch.deliveries[self.sorted.order[position as usize] as usize]
    }

    fn target(&self, position: u32) -> usize {
        self.targets.of[self.sorted.order[position as usize] as usize] as usize
    }

    /// The lane as brokers know it, by the topic that is written to and the record's key, if the message may be followed
    /// by others.
    fn lane_name(&self, lane: u32, position: u32, topic: &str, run: usize) -> Option<u64> {
        let name = self.ongoing.names[lane as usize].filter(|_| run > 1 || self.pipelined)?;
        let message = &self.delivery(position).message;
        if message.topic == topic {
            return Some(name);
        }
        event::key(message).map(|key| acks::lane(topic, key))
    }

    fn send_mode(&self, lane: Option<u64>, topic: &str, target: &Target<'_>, producers: &Producers<'_>) -> SendMode {
        let acks = &self.publisher.acks;
        let (Some(lane), Some(generation)) = (lane, producers.for_lanes()) else {
            return SendMode::Alone;
        };
        if acks.is_doubted(topic, lane) {
            return SendMode::Alone;
        }
        if target.is_warm {
            return SendMode::Together;
        }
        if acks.is_warm(generation, lane, topic, self.partitions(topic)) {
            SendMode::Together
        } else {
            SendMode::HeadFirst
        }
    }
}
