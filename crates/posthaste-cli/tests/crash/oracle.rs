//! What a sink's record says about what was committed.

use std::collections::{HashMap, HashSet};

use posthaste_core::MessageId;

/// A committed event, as the business table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub id: MessageId,
    pub key: String,
    pub n: i64,
}

/// The judgement on a sink's record.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Distinct committed events that were delivered.
    pub delivered: usize,
    /// Deliveries beyond each event's first.
    pub duplicates: usize,
    /// Committed events that were never delivered.
    pub lost: usize,
    /// Delivered events that were never committed.
    pub invented: usize,
    /// First deliveries that came after the first delivery of a later event of the same key.
    pub inversions: usize,
}

pub fn judge(deliveries: &[MessageId], committed: &[Committed]) -> Verdict {
    let truth: HashMap<MessageId, &Committed> = committed.iter().map(|event| (event.id, event)).collect();
    let mut verdict = Verdict::default();
    let mut seen = HashSet::new();
    let mut highest: HashMap<&str, i64> = HashMap::new();
    for id in deliveries {
        if !seen.insert(*id) {
            verdict.duplicates += 1;
            continue;
        }
        let Some(event) = truth.get(id) else {
            verdict.invented += 1;
            continue;
        };
        verdict.delivered += 1;
        let highest = highest.entry(&event.key).or_insert(i64::MIN);
        if event.n < *highest {
            verdict.inversions += 1;
        }
        *highest = event.n.max(*highest);
    }
    verdict.lost = truth.len() - verdict.delivered;
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_sees_every_kind_of_fault() {
        let event = |n| Committed {
            id: MessageId::new(),
            key: "k".into(),
            n,
        };
        let committed = [event(1), event(2), event(3), event(4)];
        let [one, two, three, _] = [0, 1, 2, 3].map(|place: usize| committed[place].id);
        let deliveries = [one, three, two, three, MessageId::new()];
        let expected = Verdict {
            delivered: 3,
            duplicates: 1,
            lost: 1,
            invented: 1,
            inversions: 1,
        };
        assert_eq!(judge(&deliveries, &committed), expected);
    }
}
