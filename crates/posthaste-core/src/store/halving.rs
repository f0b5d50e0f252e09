//! Finding the rows that the database refuses to change.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::RefusedRow;
use crate::message::MessageId;

/// How long one claim, or one recovery, looks for rows that are refused.
const SEARCH_TIME: Duration = Duration::from_secs(1);

/// When a claim, or a recovery, has looked long enough for rows that are refused, however many statements that took: whoever
/// called it has a time limit, others may wait for its locks, and what was found until then is worth having. What is refused
/// later is for the next one.
#[derive(Clone, Copy, Debug)]
pub struct SearchDeadline(Instant);

impl SearchDeadline {
    /// To be called once for all that is searched.
    pub fn begin() -> Self {
        Self(Instant::now() + SEARCH_TIME)
    }

    /// Whether nothing more is to be searched, unless nothing was found yet: the next search would find no more.
    pub fn is_over(self) -> bool {
        Instant::now() >= self.0
    }
}

/// Which of some rows a statement is refused for, found by halving. What is tried with success stays done until the end:
/// two rows may be refused only together, and then it is the later one that is refused.
///
/// ```
/// use posthaste_core::MessageId;
/// use posthaste_core::store::{Halving, SearchDeadline};
///
/// let ids: Vec<_> = (0..8).map(|_| MessageId::new()).collect();
/// let mut halving = Halving::new(ids.clone(), SearchDeadline::begin());
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
    deadline: SearchDeadline,
}

impl Halving {
    /// Begins with all rows in one group.
    pub fn new(ids: Vec<MessageId>, deadline: SearchDeadline) -> Self {
        Self {
            groups: vec![ids],
            refused: Vec::new(),
            deadline,
        }
    }

    /// The same, for rows of which it does not matter where one begins. If there is not the time for all of them, the next
    /// search gets to others.
    pub fn anywhere(mut ids: Vec<MessageId>, deadline: SearchDeadline) -> Self {
        if !ids.is_empty() {
            let chance = Uuid::new_v4().as_u64_pair().1;
            let first = usize::try_from(chance % ids.len() as u64).unwrap_or_default();
            ids.rotate_left(first);
        }
        Self::new(ids, deadline)
    }

    /// The rows to try next; none when all were tried. The caller says what came of it.
    pub fn next_group(&mut self) -> Option<Vec<MessageId>> {
        self.groups.pop().filter(|group| !group.is_empty())
    }

    /// A group was tried, and nothing of it was done if it was refused. When the time is over it is left as it is, so that
    /// there are but a few tries more, and one refused row keeps no other from them, however slow they are.
    pub fn tried(&mut self, mut group: Vec<MessageId>, refused: Option<String>) {
        let Some(error) = refused else { return };
        if let [id] = group[..] {
            self.refused.push(RefusedRow { id, error });
            return;
        }
        if !self.refused.is_empty() && self.deadline.is_over() {
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

    fn halve(halving: &mut Halving, is_refused: impl Fn(&[MessageId]) -> bool) -> u32 {
        let mut tries = 0;
        while let Some(group) = halving.next_group() {
            tries += 1;
            let refused = is_refused(&group).then(|| "no".to_owned());
            halving.tried(group, refused);
        }
        tries
    }

    fn rows(count: usize) -> Vec<MessageId> {
        (0..count).map(|_| MessageId::new()).collect()
    }

    #[test]
    fn nothing_is_tried_where_there_is_nothing() {
        for (count, is_refused, expected) in [(0, true, 0), (5, false, 1)] {
            let mut halving = Halving::new(rows(count), SearchDeadline::begin());
            assert_eq!(halve(&mut halving, |_| is_refused), expected);
            assert!(halving.into_refused().is_empty());
        }
    }

    #[test]
    fn when_the_time_is_over_there_are_but_a_few_tries_more() {
        let over = SearchDeadline(Instant::now());
        let mut halving = Halving::new(rows(1_024), over);
        // Down to a pair of single rows, and then each half that was left aside.
        assert_eq!(halve(&mut halving, |_| true), 21);
        assert_eq!(halving.into_refused().len(), 2);
    }

    #[test]
    fn when_the_time_is_over_one_row_keeps_no_other_from_being_tried() {
        let (ids, over) = (rows(1_000), SearchDeadline(Instant::now()));
        for refused in [0, 499, 999] {
            let (mut halving, mut done) = (Halving::new(ids.clone(), over), Vec::new());
            while let Some(group) = halving.next_group() {
                let error = group.contains(&ids[refused]).then(|| "no".to_owned());
                if error.is_none() {
                    done.extend(group.clone());
                }
                halving.tried(group, error);
            }
            let others = ids.iter().filter(|id| **id != ids[refused]);
            assert!(done.iter().eq(others), "all but row {refused}, in their order");
        }
    }

    #[test]
    fn searches_that_do_not_get_through_begin_elsewhere() {
        let (ids, over) = (rows(1_000), SearchDeadline(Instant::now()));
        let found: std::collections::HashSet<_> = (0..50)
            .flat_map(|_| {
                let mut halving = Halving::anywhere(ids.clone(), over);
                halve(&mut halving, |_| true);
                halving.into_refused()
            })
            .map(|row| row.id)
            .collect();
        assert!(found.len() > 25, "{}", found.len());
    }
}
