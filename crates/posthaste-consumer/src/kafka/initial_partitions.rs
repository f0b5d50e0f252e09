//! How many partitions topics had when the group began with them.
//!
//! A partition without an offset was there when the group began, or was added since. In the first case what it holds came
//! before the group, and `latest` passes over it; in the second all of it came since. Brokers do not say which, but
//! partitions are numbered in the order in which they are added: the number that the topic had tells. It is kept with the
//! group's offsets, as their metadata, in every commit. It never changes: partitions beyond it that have no offset are new
//! to the group, however many were added before them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// What the metadata of an offset begins with.
const METADATA_PREFIX: &str = "posthaste.partitions=";

#[derive(Debug, Default)]
pub(super) struct InitialPartitions(Mutex<HashMap<String, i32>>);

impl InitialPartitions {
    pub(super) fn get(&self, topic: &str) -> Option<i32> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(topic)
            .copied()
    }

    pub(super) fn set(&self, topic: &str, partitions: i32) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(topic.to_owned(), partitions);
    }

    /// What is committed beside an offset of the topic.
    pub(super) fn metadata(&self, topic: &str) -> String {
        self.get(topic)
            .map_or_else(String::new, |partitions| format!("{METADATA_PREFIX}{partitions}"))
    }
}

/// What a group has for one partition of a topic: nothing, or an offset with its metadata.
pub(super) type Committed<'a> = Option<&'a str>;

/// How many partitions a topic had when the group began, by what it has for each of those that there are now. Nothing if
/// that cannot be told: the offsets were committed by another client, and not for all of them.
pub(super) fn initial(all: &[Committed<'_>]) -> Option<i32> {
    let noted = all.iter().flatten();
    let noted = noted.filter_map(|metadata| metadata.strip_prefix(METADATA_PREFIX)?.parse().ok());
    noted.max().or_else(|| {
        let committed = all.iter().flatten().count();
        let begins_now = committed == 0;
        let knows_all = committed == all.len();
        (begins_now || knows_all).then(|| i32::try_from(all.len()).unwrap_or(i32::MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_the_one_that_was_noted_when_the_group_began() {
        let noted = InitialPartitions::default();
        assert_eq!(noted.metadata("orders"), "");
        noted.set("orders", 2);
        let two = noted.metadata("orders");
        let two = Some(two.as_str());
        assert_eq!(initial(&[two, two]), Some(2));
        assert_eq!(initial(&[two, None]), Some(2), "the other member has not come so far");
        assert_eq!(initial(&[two, two, None]), Some(2), "one was added");
        assert_eq!(initial(&[two, Some(""), None]), Some(2), "an operator set an offset");
    }

    #[test]
    fn without_a_note_it_is_known_of_new_groups_and_of_those_that_have_all() {
        assert_eq!(initial(&[None, None]), Some(2), "it begins now");
        assert_eq!(initial(&[Some(""), Some("of another client")]), Some(2));
        assert_eq!(initial(&[Some(""), None]), None, "it cannot be told");
    }
}
