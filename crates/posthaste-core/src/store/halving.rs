//! Finding the rows that the database refuses to change.

use std::time::{Duration, Instant};

use super::RefusedRow;
use crate::message::MessageId;

/// So many groups are tried at most. It finds one row among a thousand with twenty, and about a hundred rows in any case.
const MAX_TRIES: u32 = 250;

/// Nor is it tried for longer than this: whoever claims has a time limit, and what was found until then is worth having.
const MAX_TIME: Duration = Duration::from_secs(1);

/// Which of some rows a statement is refused for, found by halving. What is tried with success stays done until the end:
/// two rows may be refused only together, and then it is the later one that is refused.
///
/// ```
/// use posthaste_core::MessageId;
/// use posthaste_core::store::Halving;
///
/// let ids: Vec<_> = (0..8).map(|_| MessageId::new()).collect();
/// let mut halving = Halving::new(ids.clone());
/// while let Some(group) = halving.next_group() {
///     let refused = group.contains(&ids[5]).then(|| "a trigger objects".to_owned());
///     halving.tried(group, refused);
/// }
/// assert_eq!(halving.into_refused()[0].id, ids[5]);
/// ```
#[derive(Debug)]
pub struct Halving {
    groups: Vec<Vec<MessageId>>,
    refused: Vec<RefusedRow>,
    tries: u32,
    begun: Instant,
}

impl Halving {
    /// Begins with all rows in one group.
    pub fn new(ids: Vec<MessageId>) -> Self {
        Self {
            groups: vec![ids],
            refused: Vec::new(),
            tries: 0,
            begun: Instant::now(),
        }
    }

    /// The rows to try next; none when all is known, or enough was tried. The caller says what came of it.
    pub fn next_group(&mut self) -> Option<Vec<MessageId>> {
        self.tries += 1;
        let enough = self.tries > MAX_TRIES || self.begun.elapsed() > MAX_TIME && !self.refused.is_empty();
        let group = self.groups.pop().filter(|_| !enough)?;
        (!group.is_empty()).then_some(group)
    }

    /// A group was tried, and nothing of it was done if it was refused.
    pub fn tried(&mut self, mut group: Vec<MessageId>, refused: Option<String>) {
        let Some(error) = refused else { return };
        if let [id] = group[..] {
            self.refused.push(RefusedRow { id, error });
            return;
        }
        let second = group.split_off(group.len() / 2);
        self.groups.extend([second, group]);
    }

    /// The rows that are refused.
    pub fn into_refused(self) -> Vec<RefusedRow> {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halve(rows: usize, is_refused: impl Fn(&[MessageId]) -> bool) -> (Vec<MessageId>, u32) {
        let ids = (0..rows).map(|_| MessageId::new()).collect();
        let mut halving = Halving::new(ids);
        let mut tries = 0;
        while let Some(group) = halving.next_group() {
            tries += 1;
            let refused = is_refused(&group).then(|| "no".to_owned());
            halving.tried(group, refused);
        }
        (halving.into_refused().iter().map(|row| row.id).collect(), tries)
    }

    #[test]
    fn nothing_is_tried_where_there_is_nothing() {
        assert_eq!(halve(0, |_| true), (Vec::new(), 0));
        assert_eq!(halve(5, |_| false), (Vec::new(), 1));
    }

    #[test]
    fn rows_of_which_all_are_refused_do_not_take_for_ever() {
        let (refused, tries) = halve(10_000, |_| true);
        assert_eq!(tries, MAX_TRIES);
        assert!(refused.len() > 100, "{}", refused.len());
    }
}
