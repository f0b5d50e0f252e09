//! How much is risked on rows whose worker crashed.
//!
//! A message that kills its process is claimed again when its lease runs out, together with every neighbour that was in
//! flight. Attempts are counted at claim, so the killer ends up dead, but so would its neighbours if they were always
//! claimed with it. Each time rows come back from a crashed worker fewer of them are claimed together, and on the last
//! attempt one at a time: a message that kills its worker then dies alone.

/// How many expired rows may be claimed together when the most-tried of them has had `attempts` attempts.
///
/// Falls geometrically from `batch` before the second attempt to 1 before the last.
pub fn reclaim_limit(attempts: u32, max_attempts: u32, batch: u32) -> u32 {
    let retries = max_attempts.saturating_sub(1);
    if attempts >= retries || batch <= 1 {
        return 1;
    }
    let left = f64::from(retries - attempts) / f64::from(retries);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and batch by construction"
    )]
    let limit = f64::from(batch).powf(left).ceil() as u32;
    limit.clamp(1, batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_limit_falls_to_one_before_the_last_attempt() {
        let limits: Vec<_> = (1..=4).map(|attempts| reclaim_limit(attempts, 5, 1000)).collect();
        assert_eq!(limits, [178, 32, 6, 1]);
        assert_eq!(reclaim_limit(1, 2, 1000), 1);
    }

    proptest! {
        /// Proves pitfall 33.
        #[test]
        fn the_limit_never_grows_and_ends_at_one(max_attempts in 1_u32..100, batch in 1_u32..10_000) {
            let limits: Vec<_> = (0..max_attempts).map(|attempts| reclaim_limit(attempts, max_attempts, batch)).collect();
            prop_assert!(limits.is_sorted_by(|earlier, later| earlier >= later));
            prop_assert!(limits.iter().all(|limit| (1..=batch).contains(limit)));
            prop_assert_eq!(limits.last(), Some(&1));
        }
    }
}
