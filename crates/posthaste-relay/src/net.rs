//! The safety net under dead letters: what the table refuses goes to a file, and what the file refuses to an operator.
//!
//! A death that the database does not take is remembered and tried again, as every verdict is. But the relay may end before
//! that works. So its letter is written to a [spool](Spool) meanwhile, and if that fails too an alert says so. Each net has a
//! task of its own: a disk or a webhook that hangs delays no delivery.
//!
//! Where the table map has a table of dead letters beside the outbox, and only that one refuses, the row is marked as dead
//! once its letter is in the file: then the file is the place of the letter until it is imported. Else the letter is in the
//! file and its row is still held, until the table takes the verdict after all; then a line says that the letter is settled.

pub(crate) mod alerts;
mod caught;
pub(crate) mod instrument;
mod order;
mod spool;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::alert::{AlertKind, AlertMessage, AlertSink};
use posthaste_core::lifecycle::Verdict;
use posthaste_core::publisher::Outcome;
use posthaste_core::store::StoreRequirements;
use posthaste_core::{MessageId, StoreError, Text};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

pub use self::alerts::AlertPolicy;
use self::alerts::{Alerter, Event};
pub(crate) use self::caught::Caught;
pub(crate) use self::order::FileOrder;
pub use self::spool::{Contents, Letter, Line, Mark, Open, Spool, SpoolConfig, SpoolError, Unreadable};
use crate::reported::{InFlightMessage, Reported};

/// How long a relay that stops waits for each net.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Where dead letters go that the database does not take, for [`Relay::safety_net`](crate::Relay::safety_net).
///
/// # Examples
/// ```
/// use posthaste_relay::{SafetyNet, SpoolConfig};
///
/// let net = SafetyNet::new().file(SpoolConfig::new("/var/lib/shop/dead-letters.jsonl"));
/// ```
#[derive(Clone, Default)]
pub struct SafetyNet {
    file: Option<SpoolConfig>,
    alerts: Option<(Arc<dyn AlertSink>, AlertPolicy)>,
}

impl SafetyNet {
    /// None yet: a death that the database refuses is remembered and tried again.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes them to a file.
    #[must_use]
    pub fn file(mut self, config: SpoolConfig) -> Self {
        self.file = Some(config);
        self
    }

    /// Whether there is a place for dead letters outside the database.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Tells an operator of those that no place takes, and of what else the policy says.
    #[must_use]
    pub fn alerts(mut self, sink: Arc<dyn AlertSink>, policy: AlertPolicy) -> Self {
        self.alerts = Some((sink, policy));
        self
    }
}

impl std::fmt::Debug for SafetyNet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let policy = self.alerts.as_ref().map(|(_, policy)| policy);
        f.debug_struct("SafetyNet")
            .field("file", &self.file)
            .field("alerts", &policy)
            .finish()
    }
}

/// The net as the loops see it.
#[derive(Debug)]
pub(crate) struct Net {
    namespace: String,
    /// See [`StoreRequirements::known_by_event`].
    known_by_event: bool,
    files: Option<mpsc::UnboundedSender<FileOrder>>,
    alerts: Option<(mpsc::UnboundedSender<alerts::Order>, BTreeSet<AlertKind>)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The letters in the file that are in no other place.
    open: HashSet<MessageId>,
    /// Deaths of which the database has not heard yet.
    unwritten: HashMap<MessageId, Caught>,
    /// Letters that no place has taken, which was told once and is not told again at every try.
    placeless: HashSet<MessageId>,
}

/// What the tasks of the nets take their orders from.
pub(crate) struct Tasks {
    pub(crate) file: Option<(Spool, mpsc::UnboundedReceiver<FileOrder>)>,
    pub(crate) alerts: Option<(Alerter, mpsc::UnboundedReceiver<alerts::Order>)>,
}

impl Net {
    pub(crate) fn new(config: SafetyNet, namespace: &str, requirements: StoreRequirements) -> (Self, Tasks) {
        let (files, file) = config
            .file
            .map(|config| {
                let (sender, receiver) = mpsc::unbounded_channel();
                (sender, (Spool::new(config), receiver))
            })
            .unzip();
        let (senders, alerts) = config
            .alerts
            .map(|(sink, policy)| {
                let (sender, receiver) = mpsc::unbounded_channel();
                let on = policy.on.clone();
                let alerter = Alerter {
                    namespace: namespace.to_owned(),
                    sink,
                    policy,
                };
                ((sender, on), (alerter, receiver))
            })
            .unzip();
        let net = Self {
            namespace: namespace.to_owned(),
            known_by_event: requirements.known_by_event,
            files,
            alerts: senders,
            state: Mutex::default(),
        };
        (net, Tasks { file, alerts })
    }

    /// Whether there is one, for which whole messages are kept while they are in flight.
    pub(crate) fn is_there(&self) -> bool {
        self.files.is_some() || self.alerts.is_some()
    }

    /// A message died, and is on its way to be settled.
    pub(crate) fn died(&self, reported: &Reported) {
        let Verdict::Dead { error } = &reported.verdict else {
            return;
        };
        let message = &reported.message;
        let told = || AlertMessage {
            id: message.id,
            key: message.key.as_deref().map(ToOwned::to_owned),
            error: error.clone(),
        };
        if matches!(reported.outcome, Outcome::Corrupt { .. }) {
            let cause = "the stored bytes do not match their hash; they were changed after they were enqueued";
            self.tell(AlertKind::Integrity, Some(&message.topic), cause, vec![told()]);
        }
        self.tell(AlertKind::Dead, Some(&message.topic), "see each message", vec![told()]);
        if self.files.is_some()
            && !reported.spooled
            && let Some(caught) = Caught::of(reported, "the relay ended before the database answered".to_owned())
        {
            self.state().unwritten.insert(message.id, caught);
        }
    }

    /// Messages died without a word from their worker.
    pub(crate) fn swept(&self, died: &[MessageId]) {
        let told = died.iter().map(|id| AlertMessage {
            id: *id,
            key: None,
            error: "it used all its attempts, the last one without an answer".to_owned(),
        });
        if !died.is_empty() {
            self.tell(AlertKind::Dead, None, "see each message", told.collect());
        }
        for id in died {
            self.settled_row(*id);
        }
    }

    /// The database refuses to give up what has used all its attempts. The rows stay in the outbox, and nobody has them in
    /// hand, so there is no letter to be kept.
    pub(crate) fn sweep_failed(&self, error: &StoreError) {
        if !error.kind.is_transient() {
            let cause = format!("messages that used all their attempts cannot be given up: {error}");
            self.tell(AlertKind::Net, None, &cause, Vec::new());
        }
    }

    /// The database has answered for a message: what became of it is written, or is another worker's, or is remembered.
    pub(crate) fn answered(&self, id: MessageId) {
        if self.files.is_some() {
            self.state().unwritten.remove(&id);
        }
    }

    /// Whether no delivery is of interest: there is no net, or nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_there() || {
            let state = self.state();
            state.open.is_empty() && state.unwritten.is_empty() && state.placeless.is_empty()
        }
    }

    /// What became of a message stands in the outbox: its letter, if there is one in the file, is no longer needed.
    pub(crate) fn settled(&self, message: &InFlightMessage) {
        if self.is_there() {
            self.placed(&[message.id]);
            self.take_out(self.letter_id(message.id, message.event_id.as_ref()));
        }
    }

    /// The same of one that no relay had in hand, as the outbox calls it.
    pub(crate) fn settled_row(&self, id: MessageId) {
        if self.is_there() {
            self.placed(&[id]);
            self.take_out(id);
        }
    }

    fn take_out(&self, letter: MessageId) {
        if let Some(files) = &self.files
            && self.state().open.contains(&letter)
        {
            let _ = files.send(FileOrder::Settled(letter));
        }
    }

    /// These letters have a place. What is still to be told of them is no longer true.
    pub(crate) fn placed(&self, ids: &[MessageId]) {
        let found: Vec<_> = {
            let mut state = self.state();
            ids.iter().copied().filter(|id| state.placeless.remove(id)).collect()
        };
        if let (Some((alerts, _)), false) = (&self.alerts, found.is_empty()) {
            let _ = alerts.send(alerts::Order::Withdraw(found));
        }
    }

    /// Those of them that had a place, or were not known, until now.
    pub(crate) fn newly_placeless<'a>(&self, caught: &'a [Caught]) -> Vec<&'a Caught> {
        let mut state = self.state();
        let is_new = |caught: &&Caught| state.placeless.insert(caught.whole.message.id);
        caught.iter().filter(is_new).collect()
    }

    /// The database refuses these deaths.
    pub(crate) fn catch(&self, caught: Vec<Caught>) {
        if caught.is_empty() {
            return;
        }
        match &self.files {
            Some(files) => drop(files.send(FileOrder::Keep(caught))),
            None => self.tell_of(&self.newly_placeless(&caught), |caught| caught.cause.clone()),
        }
    }

    /// Writes deaths of which the database never heard to the file, and waits a while for what is on its way to the nets.
    pub(crate) async fn close(&self) {
        let unwritten: Vec<_> = self.state().unwritten.drain().map(|(_, caught)| caught).collect();
        if let (Some(files), false) = (&self.files, unwritten.is_empty()) {
            let _ = files.send(FileOrder::Keep(unwritten));
        }
        self.flush_file().await;
        if let Some((alerts, _)) = &self.alerts {
            let (done, flushed) = oneshot::channel();
            let _ = alerts.send(alerts::Order::Flush(done));
            let _ = timeout(FLUSH_TIMEOUT, flushed).await;
        }
    }

    /// Waits until what is on its way to the file is there, or is not going to be.
    pub(crate) async fn flush_file(&self) {
        if let Some(files) = &self.files {
            let (done, flushed) = oneshot::channel();
            let _ = files.send(FileOrder::Flush(done));
            let _ = timeout(FLUSH_TIMEOUT, flushed).await;
        }
    }

    /// No place takes these letters, each for the cause that is given.
    pub(crate) fn tell_of(&self, caught: &[&Caught], cause: impl Fn(&Caught) -> String) {
        let mut by_topic: HashMap<(String, String), Vec<AlertMessage>> = HashMap::new();
        for caught in caught {
            let message = &caught.whole.message;
            let told = AlertMessage {
                id: message.id,
                key: message.ordering_key.as_deref().map(ToOwned::to_owned),
                error: caught.error.clone(),
            };
            by_topic
                .entry((message.topic.to_string(), cause(caught)))
                .or_default()
                .push(told);
        }
        for ((topic, cause), messages) in by_topic {
            self.tell(AlertKind::Net, Some(&topic), &cause, messages);
        }
    }

    fn tell(&self, kind: AlertKind, topic: Option<&str>, cause: &str, messages: Vec<AlertMessage>) {
        let Some((alerts, _)) = self.alerts.as_ref().filter(|(_, on)| on.contains(&kind)) else {
            return;
        };
        let event = Event {
            kind,
            topic: topic.map(ToOwned::to_owned),
            cause: cause.to_owned(),
            count: messages.len().max(1) as u64,
            messages,
        };
        let _ = alerts.send(alerts::Order::Tell(event));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Net {
    /// Remembers which letters are in the file.
    pub(crate) fn hold(&self, contents: &Contents) {
        let ours = contents
            .open
            .iter()
            .filter(|open| open.mark.namespace == self.namespace);
        let ids: HashSet<_> = ours.map(Open::message_id).collect();
        instrument::spooled(&self.namespace, ids.len(), contents.bytes);
        self.state().open = ids;
    }

    /// What the letter of a death is known by.
    pub(crate) fn letter_of(&self, caught: &Caught) -> MessageId {
        let message = &caught.whole.message;
        self.letter_id(message.id, message.event_id.as_ref())
    }

    /// The letter as it stands in the file.
    pub(crate) fn letter(&self, caught: &Caught) -> Letter {
        caught.letter(&self.namespace, self.letter_of(caught))
    }

    /// By the row's name its letter would not be found again where a row that fails gets another one.
    fn letter_id(&self, row: MessageId, event: Option<&Text>) -> MessageId {
        match event {
            Some(event) if self.known_by_event => MessageId::guess(event),
            _ => row,
        }
    }

    /// Whether this letter is in the file, and in no other place.
    pub(crate) fn has_letter(&self, id: MessageId) -> bool {
        self.state().open.contains(&id)
    }

    /// These letters are in the file now.
    pub(crate) fn keeps(&self, ids: impl Iterator<Item = MessageId>) {
        self.state().open.extend(ids);
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn forget(&self, ids: &[MessageId]) {
        let mut state = self.state();
        for id in ids {
            state.open.remove(id);
        }
    }
}
