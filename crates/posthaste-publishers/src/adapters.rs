//! Publishers made of publishers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::future::join_all;
use posthaste_core::Message;
use posthaste_core::publisher::{Batch, Capabilities, Delivery, Outcome, Place, PublishError, Publisher, Report};

use crate::each::caught;
use crate::options::InvalidOption;
use crate::routed::Routed;
use crate::routing::Route;

/// Adapters for all publishers.
///
/// # Examples
///
/// ```
/// use posthaste_publishers::{PublisherExt, Stdout};
///
/// let publisher = Stdout::new()
///     .filter(|message| message.tenant.as_deref() != Some("test"))
///     .map(|mut message| {
///         message.topic = format!("eu.{}", message.topic).into();
///         message
///     });
/// ```
pub trait PublisherExt: Publisher + Sized {
    /// Publishes only messages for which `wanted` holds. The others count as delivered, and are gone.
    fn filter<F>(self, wanted: F) -> Filter<Self, F>
    where
        F: Fn(&Message) -> bool + Send + Sync + 'static,
    {
        Filter {
            publisher: self,
            wanted,
        }
    }

    /// Publishes what `change` makes of each message. Its id stays. Messages of one lane must stay in one lane: else their
    /// order is not kept.
    fn map<F>(self, change: F) -> Map<Self, F>
    where
        F: Fn(Message) -> Message + Send + Sync + 'static,
    {
        Map {
            publisher: self,
            change,
        }
    }

    /// Publishes messages that fit `route` by another publisher, and all others by this one.
    ///
    /// # Errors
    ///
    /// If `route` has no condition: then nothing would be left for this one.
    fn route(self, route: Route, other: impl Publisher) -> Result<Routed, InvalidOption> {
        let (own, others) = ("default", route.to.clone());
        let publishers: Vec<(String, Arc<dyn Publisher>)> =
            vec![(others, Arc::new(other)), (own.to_owned(), Arc::new(self))];
        Routed::new(publishers, vec![route, Route::to(own)])
    }

    /// Publishes every message by this publisher and by another one. It is delivered once both have it; if one of them
    /// fails, both get it again.
    fn fan_out(self, other: impl Publisher) -> FanOut {
        FanOut(vec![Arc::new(self), Arc::new(other)])
    }
}

impl<P: Publisher + Sized> PublisherExt for P {}

/// See [`PublisherExt::filter`].
#[derive(Clone, Debug)]
pub struct Filter<P, F> {
    publisher: P,
    wanted: F,
}

#[async_trait]
impl<P: Publisher, F: Fn(&Message) -> bool + Send + Sync + 'static> Publisher for Filter<P, F> {
    async fn publish(&self, batch: Batch, report: Report) {
        let mut wanted = Vec::with_capacity(batch.deliveries.len());
        for delivery in &batch.deliveries {
            if (self.wanted)(&delivery.message) {
                wanted.push(delivery.clone());
            } else {
                report.delivered(delivery.place);
            }
        }
        if !wanted.is_empty() {
            self.publisher.publish(batch.of(wanted), report).await;
        }
    }

    fn name(&self) -> &'static str {
        self.publisher.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.publisher.capabilities()
    }

    fn destination(&self, message: &Message) -> Option<Arc<str>> {
        self.publisher.destination(message)
    }

    fn destinations(&self) -> Vec<Arc<str>> {
        self.publisher.destinations()
    }

    async fn check(&self) -> Result<String, PublishError> {
        self.publisher.check().await
    }

    async fn close(&self) {
        self.publisher.close().await;
    }
}

/// See [`PublisherExt::map`].
#[derive(Clone, Debug)]
pub struct Map<P, F> {
    publisher: P,
    change: F,
}

impl<P, F: Fn(Message) -> Message> Map<P, F> {
    fn changed(&self, message: &Message) -> Message {
        let mut changed = (self.change)(message.clone());
        // Consumers know a message by its id.
        changed.id = message.id;
        changed
    }
}

#[async_trait]
impl<P: Publisher, F: Fn(Message) -> Message + Send + Sync + 'static> Publisher for Map<P, F> {
    async fn publish(&self, mut batch: Batch, report: Report) {
        for delivery in &mut batch.deliveries {
            delivery.message = self.changed(&delivery.message);
        }
        self.publisher.publish(batch, report).await;
    }

    fn name(&self) -> &'static str {
        self.publisher.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.publisher.capabilities()
    }

    fn destination(&self, message: &Message) -> Option<Arc<str>> {
        self.publisher.destination(&self.changed(message))
    }

    fn destinations(&self) -> Vec<Arc<str>> {
        self.publisher.destinations()
    }

    async fn check(&self) -> Result<String, PublishError> {
        self.publisher.check().await
    }

    async fn close(&self) {
        self.publisher.close().await;
    }
}

/// See [`PublisherExt::fan_out`].
#[derive(Clone)]
pub struct FanOut(Vec<Arc<dyn Publisher>>);

impl FanOut {
    /// Publishes every message by all of these.
    pub fn new(publishers: Vec<Arc<dyn Publisher>>) -> Self {
        Self(publishers)
    }
}

#[async_trait]
impl Publisher for FanOut {
    async fn publish(&self, batch: Batch, report: Report) {
        if self.0.is_empty() {
            for delivery in &batch.deliveries {
                report.delivered(delivery.place);
            }
            return;
        }
        let answers = Arc::new(Answers::new(&batch.deliveries, self.0.len(), report));
        join_all(self.0.iter().map(|publisher| {
            let answers = Arc::clone(&answers);
            let report = Report::new(move |place, outcome| answers.take(place, outcome));
            caught(publisher.publish(batch.clone(), report))
        }))
        .await;
    }

    fn name(&self) -> &'static str {
        "fan_out"
    }

    fn capabilities(&self) -> Capabilities {
        let all = self.0.iter().map(Publisher::capabilities);
        all.reduce(Capabilities::and).unwrap_or_default()
    }

    async fn check(&self) -> Result<String, PublishError> {
        let mut found = Vec::new();
        for publisher in &self.0 {
            found.push(publisher.check().await?);
        }
        Ok(found.join("; "))
    }

    async fn close(&self) {
        join_all(self.0.iter().map(Publisher::close)).await;
    }
}

/// What all publishers said of each message.
struct Answers {
    state: Mutex<HashMap<Place, (usize, Outcome)>>,
    report: Report,
}

impl Answers {
    fn new(deliveries: &[Delivery], publishers: usize, report: Report) -> Self {
        let open = deliveries
            .iter()
            .map(|delivery| (delivery.place, (publishers, Outcome::DELIVERED)));
        Self {
            state: Mutex::new(open.collect()),
            report,
        }
    }

    /// Takes one publisher's answer; reports the worst of all once it is the last.
    fn take(&self, place: Place, outcome: Outcome) {
        // No code panics while holding the lock, and the data would be sound if it did.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((open, worst)) = state.get_mut(&place) else {
            return;
        };
        *open -= 1;
        if severity(&outcome) >= severity(worst) {
            *worst = outcome;
        }
        if *open == 0
            && let Some((_, outcome)) = state.remove(&place)
        {
            drop(state);
            self.report.outcome(place, outcome);
        }
    }
}

fn severity(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Delivered(_) => 0,
        Outcome::NotAttempted => 1,
        Outcome::Failed(_) | Outcome::Corrupt { .. } => 2,
    }
}
