use std::sync::Arc;

use async_trait::async_trait;
use chrono::Utc;
use posthaste_core::alert::{Alert, AlertSink};
use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::publisher::PublishError;
use posthaste_core::store::{ClaimedMessage, StoreRequirements};
use posthaste_core::{Message, MessageId, RetryPolicy};
use tokio::sync::mpsc::UnboundedReceiver;

use super::alerts::Order;
use super::{AlertPolicy, Caught, Net, SafetyNet, SpoolConfig};
use crate::reported::InFlightMessage;

struct Nobody;

#[async_trait]
impl AlertSink for Nobody {
    async fn send(&self, _: &Alert) -> Result<(), PublishError> {
        Ok(())
    }

    async fn check(&self) -> Result<String, PublishError> {
        Ok(String::new())
    }
}

fn caught() -> Caught {
    Caught {
        whole: Arc::new(ClaimedMessage {
            message: Message::new("orders", "{}"),
            fault: None,
            sequence: None,
            created_at: Utc::now(),
            attempts: 1,
            hash: None,
            version: None,
            max_attempts: None,
        }),
        error: "422".to_owned(),
        cause: "no dead letters today".to_owned(),
        died_at: Utc::now(),
    }
}

/// A message of a log, under the name of one of its rows.
fn of_event(row: MessageId, event: &str) -> Caught {
    let mut message = Message::new("orders", "{}");
    (message.id, message.event_id) = (row, Some(event.into()));
    let caught = caught();
    let whole = ClaimedMessage {
        message,
        ..ClaimedMessage::clone(&caught.whole)
    };
    Caught {
        whole: Arc::new(whole),
        ..caught
    }
}

/// How many letters are told of, and which no longer.
fn orders(alerts: &mut UnboundedReceiver<Order>) -> (u64, Vec<MessageId>) {
    let (mut told, mut withdrawn) = (0, Vec::new());
    while let Ok(order) = alerts.try_recv() {
        match order {
            Order::Tell(event) => told += event.count,
            Order::Withdraw(ids) => withdrawn.extend(ids),
            Order::Flush(_) => panic!("nobody asked for it"),
        }
    }
    (told, withdrawn)
}

/// Proves D7.
#[test]
fn a_letter_without_a_place_is_told_of_once_until_it_has_one() {
    let config = SafetyNet::new().alerts(Arc::new(Nobody), AlertPolicy::default());
    let (net, tasks) = Net::new(config, "default", StoreRequirements::default());
    let (_, mut alerts) = tasks.alerts.unwrap();
    let (first, second) = (caught(), caught());
    let id = first.whole.message.id;
    net.catch(vec![first.clone()]);
    assert_eq!(orders(&mut alerts), (1, Vec::new()));
    for _ in 0..5 {
        net.catch(vec![first.clone(), second.clone()]);
    }
    assert_eq!(orders(&mut alerts), (1, Vec::new()), "the other one alone");
    net.settled_row(id);
    net.settled_row(id);
    assert_eq!(orders(&mut alerts), (0, vec![id]));
    net.catch(vec![first, second]);
    assert_eq!(orders(&mut alerts), (1, Vec::new()), "it has died again");
}

/// It is the row's own name where rows keep theirs: others may be of the same event.
#[test]
fn a_letter_of_a_log_is_known_by_its_event_whatever_its_row_is_called() {
    let event = "0199aaaa-bbbb-7ccc-8ddd-eeeeffff0006";
    for by_event in [true, false] {
        let file = SpoolConfig::new("/var/lib/never-written");
        let table = StoreRequirements {
            known_by_event: by_event,
            ..StoreRequirements::default()
        };
        let (net, tasks) = Net::new(SafetyNet::new().file(file), "default", table);
        let (_, mut orders) = tasks.file.unwrap();
        let fresh = of_event(MessageId::Number(42), event);
        let letter = net.letter(&fresh);
        let expected = if by_event { event } else { "42" };
        assert_eq!((letter.id.as_str(), letter.event_id.is_none()), (expected, by_event));
        net.keeps([net.letter_of(&fresh)].into_iter());
        // It was tried again, failed, and died as another row.
        let failed = of_event(MessageId::text("failed-27"), event);
        let retried = InFlightMessage::new(&failed.whole, LeaseToken::new(), &RetryPolicy::default());
        net.settled(&retried);
        let settled = orders.try_recv().ok();
        assert_eq!(settled.is_some(), by_event, "{settled:?}");
        net.forget(&[MessageId::guess(event)]);
        assert!(!net.has_letter(MessageId::guess(event)));
    }
}
