//! The wait for a batch's answers, which needs nothing of the messages themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_core::publisher::PublishError;

use super::batch::Ongoing;
use super::client::KafkaClient;
use super::producer::Producers;
use super::role::Role;

/// How long what was taken back may take to be reported.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// How much longer than it should the producer for single messages may take to give one up by itself.
const EXPIRY_SLACK: Duration = Duration::from_secs(3);

/// Where each message of a batch goes, as far as it is needed when there is no answer.
pub(super) struct Destinations {
    /// Each topic once; none for what cannot be sent.
    pub(super) topics: Vec<Option<String>>,
    /// Which of them, by position.
    pub(super) of: Vec<u32>,
}

/// Waits for the answers, and takes back what is not answered.
///
/// The producer for lanes never gives up by itself, so it is replaced as soon as one of them waits too long. The other one
/// does, message by message, and stays.
pub(super) struct AnswerWatch<'a> {
    publisher: &'a KafkaClient,
    ongoing: Arc<Ongoing>,
    producers: &'a Producers<'a>,
    destinations: Destinations,
    roles: [WatchedRole; 2],
}

struct WatchedRole {
    role: Role,
    limit: Duration,
    replaced_at: Option<Instant>,
}

impl<'a> AnswerWatch<'a> {
    pub(super) fn new(
        publisher: &'a KafkaClient,
        ongoing: &Arc<Ongoing>,
        producers: &'a Producers<'a>,
        destinations: Destinations,
    ) -> Self {
        let within = publisher.options.effective_answer_within();
        let watched = |role, limit| WatchedRole {
            role,
            limit,
            replaced_at: None,
        };
        Self {
            publisher,
            ongoing: Arc::clone(ongoing),
            producers,
            destinations,
            roles: [watched(Role::Lanes, within), watched(Role::Lone, within + EXPIRY_SLACK)],
        }
    }

    /// Returns when every message has its answer. May be cut short and called again.
    pub(super) async fn run(&mut self) {
        loop {
            let next = self.look();
            if tokio::time::timeout_at(next.into(), self.ongoing.over()).await.is_ok() {
                return;
            }
        }
    }

    /// Gives up what has waited for too long; returns when to look again.
    fn look(&mut self) -> Instant {
        let Self {
            publisher,
            ongoing,
            producers,
            destinations,
            roles,
        } = self;
        let now = Instant::now();
        let mut next = now + publisher.options.effective_answer_within();
        for WatchedRole {
            role,
            limit,
            replaced_at,
        } in roles
        {
            let Some(since) = ongoing.silent_since(*role) else {
                continue;
            };
            let deadline = replaced_at.map_or(since + *limit, |at| at + LAST_REPORTS);
            if now < deadline {
                next = next.min(deadline);
            } else if replaced_at.is_none() {
                let why = |position| destinations.silence(publisher, position);
                ongoing.give_up(*role, now.checked_sub(*limit).unwrap_or(since), why);
                producers.replace(*role);
                *replaced_at = Some(now);
                next = next.min(now + LAST_REPORTS);
            } else {
                ongoing.lose(*role);
            }
        }
        next
    }
}

impl Destinations {
    /// The failure of a message without an answer.
    fn silence(&self, publisher: &KafkaClient, position: u32) -> PublishError {
        let topic = self.topics[self.of[position as usize] as usize].as_deref();
        publisher.observer.silence(topic)
    }
}
