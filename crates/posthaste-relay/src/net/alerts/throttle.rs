//! Which alert is sent when.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use chrono::Utc;
use posthaste_core::MessageId;
use posthaste_core::alert::{Alert, AlertKind};
use tokio::time::Instant;

use super::policy::{AlertPolicy, Event};

/// So many messages are named in an alert.
const MAX_MESSAGES: usize = 5;

/// More causes than this are told as one.
const MAX_CAUSES: usize = 500;

/// How long until an alert that could not be sent is sent again.
const RETRY_AFTER: Duration = Duration::from_secs(30);

const MINUTE: Duration = Duration::from_mins(1);

/// What makes two alerts the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cause {
    kind: AlertKind,
    topic: Option<String>,
    reason: String,
}

#[derive(Debug, Default)]
struct Pending {
    /// What is to be told.
    alert: Option<Alert>,
    /// The letters without a place that it speaks of.
    placeless: HashSet<MessageId>,
    /// Not before.
    after: Option<Instant>,
    /// Whether it was told before.
    told: bool,
}

#[derive(Debug)]
pub(super) struct Throttle {
    namespace: String,
    policy: AlertPolicy,
    causes: HashMap<Cause, Pending>,
    /// When the latest alerts were sent.
    latest: VecDeque<Instant>,
    suppressed: u64,
}

impl Throttle {
    pub(super) fn new(namespace: &str, policy: AlertPolicy) -> Self {
        Self {
            namespace: namespace.to_owned(),
            policy,
            causes: HashMap::new(),
            latest: VecDeque::new(),
            suppressed: 0,
        }
    }

    pub(super) fn add(&mut self, event: Event) {
        let Event {
            kind,
            topic,
            cause,
            count,
            messages,
        } = event;
        let mut key = Cause {
            kind,
            topic,
            reason: cause,
        };
        if !self.causes.contains_key(&key) && self.causes.len() >= MAX_CAUSES {
            self.forget_old();
            if self.causes.len() >= MAX_CAUSES {
                key.topic = None;
                "many different causes; see the log".clone_into(&mut key.reason);
            }
        }
        let pending = self.causes.entry(key.clone()).or_default();
        if pending.told {
            self.suppressed += count;
        }
        let alert = pending.alert.get_or_insert_with(|| {
            let mut alert = Alert::new(key.kind, &self.namespace, key.reason, Utc::now());
            alert.topic = key.topic;
            alert
        });
        alert.count += count;
        if pending.told {
            alert.suppressed += count;
        }
        if key.kind == AlertKind::Net {
            pending.placeless.extend(messages.iter().map(|message| message.id));
        }
        let room = MAX_MESSAGES.saturating_sub(alert.messages.len());
        alert.messages.extend(messages.into_iter().take(room));
    }

    /// These letters have a place after all: what was not sent yet does not speak of them.
    pub(super) fn withdraw(&mut self, ids: &[MessageId]) {
        for pending in self.causes.values_mut() {
            let Some(alert) = &mut pending.alert else { continue };
            let gone: HashSet<_> = ids.iter().filter(|id| pending.placeless.remove(id)).collect();
            alert.count = alert.count.saturating_sub(gone.len() as u64);
            alert.suppressed = alert.suppressed.min(alert.count);
            alert.messages.retain(|message| !gone.contains(&message.id));
            if alert.count == 0 {
                pending.alert = None;
            }
        }
    }

    /// An alert to be sent now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Alert> {
        if self.minute_is_full(now).is_some() {
            return None;
        }
        let due = |pending: &Pending| pending.alert.is_some() && pending.after.is_none_or(|after| after <= now);
        // The oldest first, and what was never told before what was.
        let next = self
            .causes
            .values_mut()
            .filter(|pending| due(pending))
            .min_by_key(|pending| (pending.told, pending.alert.as_ref().map(|alert| alert.since)))?;
        next.alert.take()
    }

    /// What became of an alert.
    pub(super) fn sent(&mut self, alert: Alert, taken: bool, now: Instant) {
        self.latest.push_back(now);
        let key = Cause {
            kind: alert.kind,
            topic: alert.topic.clone(),
            reason: alert.cause.clone(),
        };
        let pending = self.causes.entry(key).or_default();
        if taken {
            pending.told = true;
            pending.placeless.clear();
            pending.after = Some(now + self.policy.min_interval);
        } else {
            pending.after = Some(now + RETRY_AFTER);
            pending.alert = Some(alert);
        }
    }

    /// When there is something to be sent next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let now = Instant::now();
        let waiting = self.causes.values().filter(|pending| pending.alert.is_some());
        let next = waiting.map(|pending| pending.after.unwrap_or(now)).min()?;
        let full = (self.latest.len() >= self.policy.max_per_minute.max(1) as usize)
            .then(|| self.latest.front().map(|first| *first + MINUTE))
            .flatten();
        Some(full.map_or(next, |full| full.max(next)))
    }

    /// How many were held back since the last call.
    pub(super) fn take_suppressed(&mut self) -> u64 {
        std::mem::take(&mut self.suppressed)
    }

    /// Until when nothing more may be sent.
    fn minute_is_full(&mut self, now: Instant) -> Option<Instant> {
        while self.latest.front().is_some_and(|first| *first + MINUTE <= now) {
            self.latest.pop_front();
        }
        let is_full = self.latest.len() >= self.policy.max_per_minute.max(1) as usize;
        self.latest.front().filter(|_| is_full).map(|first| *first + MINUTE)
    }

    fn forget_old(&mut self) {
        let now = Instant::now();
        self.causes
            .retain(|_, pending| pending.alert.is_some() || pending.after.is_some_and(|after| after > now));
    }
}
