//! Figures that were measured several times.

use serde::Serialize;

/// The values of one figure, by the round in which they were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Series(Vec<(u32, f64)>);

impl Series {
    pub(crate) fn push(&mut self, round: u32, value: f64) {
        self.0.push((round, value));
    }

    /// Of an even number of values the mean of the two in the middle: the smaller one would flatter a cost.
    pub(crate) fn median(&self) -> Option<f64> {
        let sorted = self.sorted();
        let (low, high) = (
            sorted.get(sorted.len().checked_sub(1)? / 2)?,
            sorted.get(sorted.len() / 2)?,
        );
        Some(f64::midpoint(*low, *high))
    }

    /// The smallest and the largest.
    pub(crate) fn spread(&self) -> Option<(f64, f64)> {
        let sorted = self.sorted();
        Some((*sorted.first()?, *sorted.last()?))
    }

    /// The ratios to another figure, each to the value of the same round: a machine changes its speed between rounds.
    pub(crate) fn relative_to(&self, other: &Self) -> Self {
        let of_round = |round| other.0.iter().find(|(other, _)| *other == round);
        let ratio = |(round, value): &(u32, f64)| Some((*round, value / of_round(*round)?.1));
        Self(self.0.iter().filter_map(ratio).collect())
    }

    fn sorted(&self) -> Vec<f64> {
        let mut values: Vec<f64> = self.0.iter().map(|(_, value)| *value).collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

impl FromIterator<f64> for Series {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self((0..).zip(values).collect())
    }
}

/// A count as a number to reckon with.
#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^52")]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let mut ours = Series::default();
        let mut theirs = Series::default();
        for (round, value, other) in [(0, 50.0, 100.0), (2, 200.0, 100.0), (1, 90.0, 100.0)] {
            ours.push(round, value);
            theirs.push(round, other);
        }
        theirs.push(7, 1.0);
        let ratios = ours.relative_to(&theirs);
        assert!((ratios.median().unwrap() - 0.9).abs() < f64::EPSILON);
        assert_eq!(ratios.spread(), Some((0.5, 2.0)));
        assert_eq!(Series::from_iter([1.0, 4.0, 2.0, 3.0]).median(), Some(2.5));
        assert_eq!(Series::default().median(), None);
    }
}
