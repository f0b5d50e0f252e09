//! Compares what was committed with what was delivered.

use std::collections::{HashMap, HashSet};

use posthaste_core::MessageId;

use super::sink::Delivered;

/// An order that the business table holds.
#[derive(Clone, Debug)]
pub(super) struct Committed {
    pub(super) id: MessageId,
    pub(super) customer: String,
    pub(super) number: u32,
    /// When the commit returned.
    pub(super) at_micros: Option<i64>,
}

/// What the comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Committed events that arrived at least once.
    pub(super) delivered: u64,
    /// Arrivals of committed events beyond the first.
    pub(super) duplicates: u64,
    /// Committed events that never arrived.
    pub(super) lost: u64,
    /// Events that arrived and were never committed, or not with this content.
    pub(super) invented: u64,
    /// First arrivals that came after a later one of the same customer.
    pub(super) order_violations: u64,
    /// Time from commit to first arrival, ascending.
    pub(super) latencies_micros: Vec<u64>,
}

pub(super) fn compare(committed: &[Committed], deliveries: &[Delivered]) -> Findings {
    let orders: HashMap<MessageId, &Committed> = committed.iter().map(|order| (order.id, order)).collect();
    let mut arrived = HashSet::new();
    let mut invented = HashSet::new();
    let mut latest: HashMap<&str, u32> = HashMap::new();
    let mut findings = Findings::default();
    for delivery in deliveries {
        let Some(order) = orders.get(&delivery.id).filter(|order| is_of(delivery, order)) else {
            invented.insert(delivery.id);
            continue;
        };
        if !arrived.insert(delivery.id) {
            findings.duplicates += 1;
            continue;
        }
        let latest = latest.entry(&order.customer).or_default();
        findings.order_violations += u64::from(order.number < *latest);
        *latest = order.number.max(*latest);
        // An event may arrive before the call that committed it has returned.
        let latency = order
            .at_micros
            .map(|at| u64::try_from(delivery.at_micros - at).unwrap_or(0));
        findings.latencies_micros.extend(latency);
    }
    findings.latencies_micros.sort_unstable();
    findings.delivered = arrived.len() as u64;
    findings.lost = (orders.len() - arrived.len()) as u64;
    findings.invented = invented.len() as u64;
    findings
}

fn is_of(delivery: &Delivered, order: &Committed) -> bool {
    delivery.customer == order.customer && delivery.number == order.number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three orders of one customer and one of another, each delivered 1 ms after its commit.
    fn scene() -> (Vec<Committed>, Vec<Delivered>) {
        let committed: Vec<_> = [("ann", 1), ("ann", 2), ("ann", 4), ("bob", 1)]
            .map(|(customer, number)| Committed {
                id: MessageId::new(),
                customer: customer.to_owned(),
                number,
                at_micros: Some(5_000),
            })
            .into();
        let delivered = committed.iter().map(arrival).collect();
        (committed, delivered)
    }

    fn arrival(order: &Committed) -> Delivered {
        Delivered {
            id: order.id,
            customer: order.customer.clone(),
            number: order.number,
            at_micros: 6_000,
        }
    }

    fn clean() -> Findings {
        Findings {
            delivered: 4,
            latencies_micros: vec![1_000; 4],
            ..Findings::default()
        }
    }

    #[test]
    fn a_faultless_delivery_is_found_faultless() {
        let (committed, delivered) = scene();
        assert_eq!(compare(&committed, &delivered), clean());
    }

    #[test]
    fn planted_loss_is_found() {
        let (committed, mut delivered) = scene();
        delivered.remove(1);
        let findings = compare(&committed, &delivered);
        assert_eq!(
            (findings.lost, findings.delivered, findings.order_violations),
            (1, 3, 0)
        );
    }

    #[test]
    fn planted_invention_is_found() {
        let (mut committed, delivered) = scene();
        let rolled_back = committed.remove(3);
        assert_eq!(compare(&committed, &delivered).invented, 1);
        committed.push(Committed {
            number: 7,
            ..rolled_back
        });
        let findings = compare(&committed, &delivered);
        assert_eq!(
            (findings.invented, findings.lost),
            (1, 1),
            "the same id with other content"
        );
    }

    #[test]
    fn planted_inversion_is_found_among_first_arrivals_only() {
        let (committed, mut delivered) = scene();
        delivered.push(arrival(&committed[0]));
        let repeated = Findings {
            duplicates: 1,
            ..clean()
        };
        assert_eq!(
            compare(&committed, &delivered),
            repeated,
            "a repetition is no inversion"
        );
        delivered.swap(0, 2);
        assert_eq!(compare(&committed, &delivered).order_violations, 2);
    }
}
