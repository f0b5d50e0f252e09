//! Which topics have figures of their own. Their names are the producers', so there may be any number of them, and each one
//! costs the relay and whatever stores its figures memory for good.

use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use posthaste_core::store::Scope;

/// So many topics of a namespace have figures of their own, besides those that its scope names.
const MAX_TOPICS: usize = 200;

/// All others together.
pub(super) const OTHER: &str = "other";

/// For messages of which no more is known than that they were given up.
pub(super) const UNKNOWN: &str = "unknown";

/// For the whole process, as its recorder is: relays come and go.
static KNOWN: LazyLock<Mutex<HashMap<String, HashSet<String>>>> = LazyLock::new(Mutex::default);

/// The topics that a relay was told to serve have figures of their own, however many they are.
pub(super) fn of_scope(scope: &Scope) {
    let mut known = known();
    let topics = known.entry(scope.namespace.clone()).or_default();
    topics.extend(scope.topics.iter().cloned());
}

/// The label of a topic: its name, for the first ones that come by.
pub(super) fn label(namespace: &str, topic: &str) -> String {
    let mut known = known();
    let topics = match known.get_mut(namespace) {
        Some(topics) => topics,
        None => known.entry(namespace.to_owned()).or_default(),
    };
    if !topics.contains(topic) {
        if topics.len() >= MAX_TOPICS {
            return OTHER.to_owned();
        }
        topics.insert(topic.to_owned());
    }
    topic.to_owned()
}

fn known() -> MutexGuard<'static, HashMap<String, HashSet<String>>> {
    // No code panics while holding the lock, and the data would be sound if it did.
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_topics_have_labels_of_their_own_and_all_others_share_one() {
        let labels: HashSet<_> = (0..10_000).map(|n| label("many topics", &format!("t{n}"))).collect();
        assert_eq!(labels.len(), MAX_TOPICS + 1);
        assert!(labels.contains("t0") && labels.contains(OTHER));
        assert_eq!(label("many topics", "t0"), "t0");
        assert_eq!(label("another namespace", "t9999"), "t9999");
    }

    #[test]
    fn the_topics_of_a_scope_have_labels_of_their_own_however_late_they_come() {
        for n in 0..MAX_TOPICS {
            label("scoped", &format!("t{n}"));
        }
        of_scope(&Scope {
            namespace: "scoped".to_owned(),
            topics: vec!["orders".to_owned()],
            ..Scope::default()
        });
        assert_eq!(label("scoped", "orders"), "orders");
        assert_eq!(label("scoped", "payments"), OTHER);
    }
}
