//! What arrived: all of it, nothing twice, each key in order.

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use crate::workload::WARM_UP;

/// Counts the rows that arrive at a sink.
#[derive(Debug)]
pub(crate) struct Tally {
    keys: u32,
    /// One bit for each row.
    seen: Vec<u64>,
    /// The highest number of each key.
    last: Vec<u32>,
    arrived: Arrived,
}

/// What a tally has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrived {
    /// Rows, each counted once.
    pub(crate) rows: u64,
    /// Rows that came again.
    pub(crate) duplicates: u64,
    /// Rows that came after a later one of their key.
    pub(crate) out_of_order: u64,
    /// Rows that nobody sent.
    pub(crate) unknown: u64,
}

impl Tally {
    /// For rows from 1 to `rows`.
    pub(crate) fn new(rows: u32, keys: u32) -> Self {
        Self {
            keys,
            seen: vec![0; rows as usize / 64 + 1],
            last: vec![0; keys as usize],
            arrived: Arrived::default(),
        }
    }

    /// A row arrived.
    pub(crate) fn note(&mut self, number: Option<u32>) {
        let Some(n) = number else {
            self.arrived.unknown += 1;
            return;
        };
        if n == WARM_UP {
            return;
        }
        let Some(word) = self.seen.get_mut(n as usize / 64) else {
            self.arrived.unknown += 1;
            return;
        };
        let bit = 1 << (n % 64);
        if *word & bit != 0 {
            self.arrived.duplicates += 1;
            return;
        }
        *word |= bit;
        self.arrived.rows += 1;
        let last = &mut self.last[(n % self.keys) as usize];
        if *last > n {
            self.arrived.out_of_order += 1;
        } else {
            *last = n;
        }
    }

    pub(crate) fn arrived(&self) -> Arrived {
        self.arrived
    }
}

impl Arrived {
    /// Whether a run counts: a number is worth nothing if rows were lost, sent twice or, where that was promised,
    /// overtaken.
    pub(crate) fn verify(self, rows: u32, ordered: bool) -> anyhow::Result<()> {
        ensure!(
            self.rows == u64::from(rows),
            "{} of {rows} rows arrived, {} unknown",
            self.rows,
            self.unknown
        );
        ensure!(self.duplicates == 0, "{} rows arrived twice", self.duplicates);
        ensure!(
            !ordered || self.out_of_order == 0,
            "{} rows were overtaken by a later one of their key",
            self.out_of_order
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(numbers: impl IntoIterator<Item = u32>) -> Arrived {
        let mut tally = Tally::new(100, 10);
        for n in numbers {
            tally.note(Some(n));
        }
        tally.arrived()
    }

    #[test]
    fn a_run_that_loses_repeats_or_reorders_does_not_count() {
        arrived(0..=100).verify(100, true).unwrap();
        assert!(arrived(1..=99).verify(100, true).is_err());
        assert!(arrived((1..=100).chain([7])).verify(100, true).is_err());
        let swapped = || {
            (1..=100).map(|n| {
                if n == 7 {
                    17
                } else if n == 17 {
                    7
                } else {
                    n
                }
            })
        };
        assert!(arrived(swapped()).verify(100, true).is_err());
        arrived(swapped()).verify(100, false).unwrap();
    }

    #[test]
    fn what_nobody_sent_is_not_counted_as_a_row() {
        let mut tally = Tally::new(1, 1);
        tally.note(None);
        tally.note(Some(1_000));
        assert_eq!(tally.arrived().rows, 0);
        assert_eq!(tally.arrived().unknown, 2);
    }
}
