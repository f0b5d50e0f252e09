//! A set of ids, kept as ranges: a sequence that jumps by a million leaves one entry, not a million.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A set of ids. Neighbours are kept together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// From first to last, both included; no two overlap or touch.
    ranges: BTreeMap<i64, i64>,
}

impl Ranges {
    /// The ids of one range.
    pub fn of(range: RangeInclusive<i64>) -> Self {
        let mut ranges = Self::default();
        ranges.insert(range);
        ranges
    }

    /// Adds all ids of a range.
    pub fn insert(&mut self, range: RangeInclusive<i64>) {
        let (mut first, mut last) = range.into_inner();
        if first > last {
            return;
        }
        if let Some((&before, &end)) = self.ranges.range(..=first).next_back()
            && end.saturating_add(1) >= first
        {
            self.ranges.remove(&before);
            (first, last) = (before, last.max(end));
        }
        while let Some((&next, &end)) = self.ranges.range(first..=last.saturating_add(1)).next() {
            self.ranges.remove(&next);
            last = last.max(end);
        }
        self.ranges.insert(first, last);
    }

    /// Adds all ids of another set.
    pub fn extend(&mut self, other: &Self) {
        other.iter().for_each(|range| self.insert(range));
    }

    /// Takes out one id.
    pub fn remove(&mut self, id: i64) {
        let Some((&first, &last)) = self.ranges.range(..=id).next_back() else {
            return;
        };
        if id > last {
            return;
        }
        self.ranges.remove(&first);
        if first < id {
            self.ranges.insert(first, id - 1);
        }
        if id < last {
            self.ranges.insert(id + 1, last);
        }
    }

    /// Takes out all ids of a range.
    pub fn remove_range(&mut self, range: RangeInclusive<i64>) {
        let (first, last) = range.into_inner();
        if first > last {
            return;
        }
        let above = self.split_above(last);
        if let Some(before) = first.checked_sub(1) {
            drop(self.split_above(before));
        } else {
            self.ranges.clear();
        }
        self.extend(&above);
    }

    /// Takes out and returns everything above `id`.
    #[must_use]
    pub fn split_above(&mut self, id: i64) -> Self {
        let Some(next) = id.checked_add(1) else {
            return Self::default();
        };
        let mut above = self.ranges.split_off(&next);
        if let Some((_, last)) = self.ranges.iter_mut().next_back()
            && *last > id
        {
            above.insert(next, *last);
            *last = id;
        }
        Self { ranges: above }
    }

    /// The ids that are in another set too.
    #[must_use]
    pub fn within(&self, other: &Self) -> Self {
        let mut both = Self::default();
        for (first, last) in &self.ranges {
            let before = other.ranges.range(..=first).next_back();
            let next = other.ranges.range(first..=last).filter(|(start, _)| *start != first);
            for (start, end) in before.into_iter().chain(next) {
                both.insert(*first.max(start)..=*last.min(end));
            }
        }
        both
    }

    /// Whether an id is in the set.
    pub fn contains(&self, id: i64) -> bool {
        self.ranges
            .range(..=id)
            .next_back()
            .is_some_and(|(_, last)| id <= *last)
    }

    /// The smallest id.
    pub fn first(&self) -> Option<i64> {
        self.ranges.keys().next().copied()
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = RangeInclusive<i64>> + '_ {
        self.ranges.iter().map(|(first, last)| *first..=*last)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ids.
    pub fn count(&self) -> u64 {
        self.ranges
            .iter()
            .map(|(first, last)| last.abs_diff(*first).saturating_add(1))
            .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(i64, i64),
        Remove(i64),
        RemoveRange(i64, i64),
        SplitAbove(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0_i64..60, 0_i64..12).prop_map(|(first, length)| Step::Insert(first, first + length - 1)),
            (0_i64..70).prop_map(Step::Remove),
            (0_i64..60, 0_i64..12).prop_map(|(first, length)| Step::RemoveRange(first, first + length - 1)),
            (0_i64..70).prop_map(Step::SplitAbove),
        ]
    }

    proptest! {
        #[test]
        fn ranges_behave_like_the_set_of_their_ids(steps in prop::collection::vec(step(), 1..40)) {
            let (mut ranges, mut ids) = (Ranges::default(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Insert(first, last) => {
                        ranges.insert(first..=last);
                        ids.extend(first..=last);
                    }
                    Step::Remove(id) => {
                        ranges.remove(id);
                        ids.remove(&id);
                    }
                    Step::RemoveRange(first, last) => {
                        ranges.remove_range(first..=last);
                        ids.retain(|id| !(first..=last).contains(id));
                    }
                    Step::SplitAbove(id) => {
                        let above = ranges.split_above(id);
                        let expected = ids.split_off(&(id + 1));
                        prop_assert_eq!(above.iter().flatten().collect::<BTreeSet<_>>(), expected);
                    }
                }
                prop_assert_eq!(ranges.iter().flatten().collect::<BTreeSet<_>>(), ids.clone());
                prop_assert_eq!(ranges.count(), ids.len() as u64);
                let mut some = Ranges::of(3..=20);
                some.insert(30..=31);
                let both = ids.iter().copied().filter(|id| some.contains(*id));
                prop_assert_eq!(ranges.within(&some).iter().flatten().collect::<Vec<_>>(), both.collect::<Vec<_>>());
                prop_assert_eq!(ranges.first(), ids.first().copied());
                prop_assert!((0..75).all(|id| ranges.contains(id) == ids.contains(&id)));
                let kept: Vec<_> = ranges.iter().collect();
                prop_assert!(kept.windows(2).all(|pair| *pair[0].end() + 1 < *pair[1].start()), "neighbours are together");
            }
        }
    }

    #[test]
    fn the_largest_ids_do_not_overflow() {
        let mut ranges = Ranges::of(5..=i64::MAX);
        ranges.insert(i64::MAX..=i64::MAX);
        assert!(ranges.split_above(i64::MAX).is_empty());
        assert_eq!(ranges.split_above(9), Ranges::of(10..=i64::MAX));
        assert_eq!(ranges, Ranges::of(5..=9));
    }
}
