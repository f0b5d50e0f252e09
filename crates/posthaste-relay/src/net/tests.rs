use std::sync::Arc;

use async_trait::async_trait;
use chrono::Utc;
use posthaste_core::alert::{Alert, AlertSink};
use posthaste_core::publisher::PublishError;
use posthaste_core::store::ClaimedMessage;
use posthaste_core::{Message, MessageId};
use tokio::sync::mpsc::UnboundedReceiver;

use super::alerts::Order;
use super::{AlertPolicy, Caught, Net, SafetyNet};

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
    let (net, tasks) = Net::new(config, "default");
    let (_, mut alerts) = tasks.alerts.unwrap();
    let (first, second) = (caught(), caught());
    let id = first.whole.message.id;
    net.catch(vec![first.clone()]);
    assert_eq!(orders(&mut alerts), (1, Vec::new()));
    for _ in 0..5 {
        net.catch(vec![first.clone(), second.clone()]);
    }
    assert_eq!(orders(&mut alerts), (1, Vec::new()), "the other one alone");
    net.settled(id);
    net.settled(id);
    assert_eq!(orders(&mut alerts), (0, vec![id]));
    net.catch(vec![first, second]);
    assert_eq!(orders(&mut alerts), (1, Vec::new()), "it has died again");
}
