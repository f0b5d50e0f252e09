//! Several publishers as one: each message goes to one of them.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use posthaste_core::Message;
use posthaste_core::publisher::{Batch, Capabilities, Delivery, ErrorScope, Outcome, PublishError, Publisher, Report};

use crate::each::caught;
use crate::options::InvalidOption;
use crate::routing::Route;

/// Which messages go to which of several publishers.
#[derive(Clone, Debug)]
pub struct Routes(Vec<(Route, usize)>);

impl Routes {
    /// These rules, for publishers with these names.
    ///
    /// # Errors
    ///
    /// If a rule names no publisher, if one is never reached, or if a message might fit none.
    pub fn new(routes: Vec<Route>, names: &[String]) -> Result<Self, InvalidOption> {
        let invalid = |field: String, value: &str, remedy: String| Err(InvalidOption::new(field, value, remedy));
        let known = names.join(", ");
        if routes.is_empty() {
            let remedy = format!(
                "is missing; say which messages go to which of {known}, and last where all others go: [[routes]] with `to` only"
            );
            return invalid("routes".to_owned(), "[]", remedy);
        }
        let last = routes.len() - 1;
        let mut targets = Vec::with_capacity(routes.len());
        for (place, route) in routes.into_iter().enumerate() {
            let Some(target) = names.iter().position(|name| *name == route.to) else {
                let remedy = format!("no publisher has this name; there are {known}");
                return invalid(format!("routes.{place}.to"), &format!("{:?}", route.to), remedy);
            };
            match (route.is_unconditional(), place == last) {
                (true, false) => {
                    let remedy =
                        "is for all messages, so those that follow it are never reached; put it last".to_owned();
                    return invalid(format!("routes.{place}.to"), &format!("{:?}", route.to), remedy);
                }
                (false, true) => {
                    let remedy =
                        "is the last and has conditions, so some messages would go nowhere; add one with `to` only";
                    return invalid(
                        format!("routes.{place}.to"),
                        &format!("{:?}", route.to),
                        remedy.to_owned(),
                    );
                }
                _ => targets.push((route, target)),
            }
        }
        match (0..names.len()).find(|place| targets.iter().all(|(_, target)| target != place)) {
            Some(unused) => invalid(
                format!("publishers.{unused}.name"),
                &format!("{:?}", names[unused]),
                "no route sends anything to it; add one, or leave the publisher out".to_owned(),
            ),
            None => Ok(Self(targets)),
        }
    }

    /// The place of the publisher that a message goes to.
    fn target(&self, message: &Message) -> usize {
        let found = self.0.iter().find(|(route, _)| route.matches(message));
        // The last rule is for all messages.
        found.or(self.0.last()).map_or(0, |(_, target)| *target)
    }
}

/// Hands each message to one of several publishers.
///
/// Each of them is a destination of its own to the relay: one that is unavailable, or falls silent, opens its own circuit
/// breaker and holds back its own messages. Where messages of one lane go to several publishers, they still go out one after
/// the other.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use posthaste_publishers::{LogPublisher, Route, Routed, Stdout};
///
/// let routed = Routed::new(
///     vec![
///         ("audit".to_owned(), Arc::new(LogPublisher::default())),
///         ("all".to_owned(), Arc::new(Stdout::new())),
///     ],
///     vec![Route::to("audit").event_type("*.deleted"), Route::to("all")],
/// )
/// .unwrap();
/// ```
#[derive(Clone)]
pub struct Routed {
    routes: Routes,
    publishers: Vec<(Arc<str>, Arc<dyn Publisher>)>,
}

impl Routed {
    /// These publishers behind these rules.
    ///
    /// # Errors
    ///
    /// See [`Routes::new`].
    pub fn new(publishers: Vec<(String, Arc<dyn Publisher>)>, routes: Vec<Route>) -> Result<Self, InvalidOption> {
        let names: Vec<String> = publishers.iter().map(|(name, _)| name.clone()).collect();
        Ok(Self {
            routes: Routes::new(routes, &names)?,
            publishers: publishers.into_iter().map(|(name, to)| (name.into(), to)).collect(),
        })
    }

    /// The deliveries of each publisher. Of a lane that goes to several, what follows the first that goes elsewhere is
    /// reported as not attempted: it waits until those before it have gone out.
    fn divide(&self, batch: &Batch, report: &Report) -> Vec<Vec<Delivery>> {
        let mut parts = vec![Vec::new(); self.publishers.len()];
        let mut lanes: HashMap<(&str, &str), Option<usize>> = HashMap::new();
        for delivery in &batch.deliveries {
            let target = self.routes.target(&delivery.message);
            if let Some(lane) = delivery.message.lane() {
                let of_lane = lanes.entry(lane).or_insert(Some(target));
                if *of_lane != Some(target) {
                    *of_lane = None;
                    report.outcome(delivery.message.id, Outcome::NotAttempted);
                    continue;
                }
            }
            parts[target].push(delivery.clone());
        }
        parts
    }
}

#[async_trait]
impl Publisher for Routed {
    async fn publish(&self, batch: Batch, report: Report) {
        let parts = self.divide(&batch, &report);
        let publications = parts
            .into_iter()
            .zip(&self.publishers)
            .filter(|(part, _)| !part.is_empty());
        join_all(publications.map(|(part, (name, publisher))| {
            let (name, told) = (Arc::clone(name), report.clone());
            let report = Report::new(move |id, outcome| told.outcome(id, within(&name, outcome)));
            // A panic is kept to its publisher: what it has not reported counts as unknown, and no other's does.
            caught(publisher.publish(batch.of(part), report))
        }))
        .await;
    }

    fn name(&self) -> &'static str {
        "routed"
    }

    fn capabilities(&self) -> Capabilities {
        let all = self.publishers.iter().map(|(_, publisher)| publisher.capabilities());
        all.reduce(Capabilities::and).unwrap_or_default()
    }

    fn destination(&self, message: &Message) -> Option<Arc<str>> {
        Some(Arc::clone(&self.publishers[self.routes.target(message)].0))
    }

    async fn check(&self) -> Result<String, PublishError> {
        let mut found = Vec::new();
        for (name, publisher) in &self.publishers {
            let checked = publisher.check().await;
            let checked = checked.map_err(|mut error| {
                error.message = format!("publisher {name}: {}", error.message);
                error
            })?;
            found.push(format!("{name}: {checked}"));
        }
        Ok(found.join("; "))
    }

    async fn close(&self) {
        join_all(self.publishers.iter().map(|(_, publisher)| publisher.close())).await;
    }
}

/// A failure of everything behind one publisher is a failure of one destination.
fn within(name: &Arc<str>, outcome: Outcome) -> Outcome {
    let Outcome::Failed(error) = outcome else {
        return outcome;
    };
    let scope = match &error.scope {
        ErrorScope::Broker => ErrorScope::Destination(Arc::clone(name)),
        ErrorScope::Destination(destination) => ErrorScope::Destination(format!("{name}/{destination}").into()),
        ErrorScope::Partition(partition) => ErrorScope::Partition(format!("{name}/{partition}").into()),
        scope => scope.clone(),
    };
    Outcome::Failed(error.within(scope))
}
