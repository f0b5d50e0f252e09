//! The order in which a round measures.

use rand::seq::SliceRandom;

/// The cases in random order: in a fixed one a machine that grows slower or faster would favour the same cases in every round.
pub(crate) fn shuffled<T>(cases: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut cases: Vec<T> = cases.into_iter().collect();
    cases.shuffle(&mut rand::rng());
    cases
}
