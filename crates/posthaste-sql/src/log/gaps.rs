//! The ids that a reader passed over, and the proof that nothing will come of them.
//!
//! What makes the proof hold:
//! 1. A transaction that takes an id holds a lock on the table or on the sequence before that, and keeps it until its
//!    transaction ends. So the id must be used in the transaction that took it; [`super::ClosedGaps`] is the net for
//!    those that are not.
//! 2. Ids are given out in order: a transaction that took an id below one that a read saw had its lock before that read
//!    began.
//! 3. The holders of the lock are looked up **after** a read took its snapshot. So the owner of a passed-over id is among
//!    them, or had ended by then.
//! 4. A transaction is visible to new reads before it gives up its lock.
//!
//! Hence an id that the next read does not find can only come from one of the holders noted when it was passed over. Once
//! all of them have ended, a read that begins then finds what they committed; if it finds nothing, nothing will ever come.

use std::collections::{BTreeMap, BTreeSet};

use super::ranges::Ranges;
use super::state::ReaderState;

/// A transaction that holds the lock of an insert. Its name must not be used for another transaction later.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// What the database calls it.
    pub name: String,
    /// Whether it waits for the second phase of its commit. Preparing gives a transaction a new name.
    pub prepared: bool,
}

/// Whether gaps are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// Until they are proved closed.
    #[default]
    Required,
    /// Not at all: what a plain `id > cursor` does. It loses rows; tests show that it does.
    Skipped,
}

/// The highest id that was read, and the ids below it that may still come.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    hi: i64,
    proof: Proof,
    /// By the holders they may come from, as of the last look. Those that are kept under nobody may have come from one
    /// that ended before that look, so one more read decides.
    by_holders: BTreeMap<BTreeSet<Holder>, Ranges>,
    /// Those that an earlier reader left open. Whom they may come from is learnt by the first read that looks at them.
    left_open: Ranges,
    /// The prepared transactions of the last look.
    prepared: BTreeSet<Holder>,
    /// Whether the last look found that a holder had ended, or passed ids over.
    changed: bool,
    closed: u64,
    /// Those that were closed since they were last asked for.
    just_closed: Ranges,
}

impl Gaps {
    /// Begins after `hi`: nothing at or below it will be read.
    pub fn after(hi: i64, proof: Proof) -> Self {
        Self {
            hi,
            proof,
            ..Self::default()
        }
    }

    /// Begins where an earlier reader ended: after the state's highest id, but for the ids that it left open.
    pub fn resume(state: &ReaderState, proof: Proof) -> Self {
        Self {
            left_open: state.open.clone(),
            ..Self::after(state.hi, proof)
        }
    }

    /// Whether gaps are kept.
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// The highest id that was read.
    pub fn hi(&self) -> i64 {
        self.hi
    }

    /// All ids that may still come. Every read has to look at all of them, in the one snapshot in which it looks at the
    /// tail or in a later one: if it left out those whose holders seem to be at work, it could find a transaction's second
    /// row and not its first.
    pub fn ids(&self) -> Ranges {
        let mut all = self.looked_at();
        all.extend(&self.left_open);
        all
    }

    /// Those of them that a read has looked at. In its snapshot there was no row.
    pub(super) fn looked_at(&self) -> Ranges {
        let mut all = Ranges::default();
        for ranges in self.by_holders.values() {
            all.extend(ranges);
        }
        all
    }

    /// Whether another read at once may find more, or close gaps.
    pub fn worth_a_look(&self) -> bool {
        self.changed && !self.by_holders.is_empty()
    }

    /// The lowest id that may still come.
    pub fn first(&self) -> Option<i64> {
        let left_open = self.left_open.first();
        self.by_holders
            .values()
            .filter_map(Ranges::first)
            .chain(left_open)
            .min()
    }

    /// How many ids may still come.
    pub fn open(&self) -> u64 {
        let known = self.by_holders.values().map(Ranges::count);
        known.fold(self.left_open.count(), u64::saturating_add)
    }

    /// How many ids were proved never to come.
    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// The ids that were closed since this was last called.
    pub fn take_closed(&mut self) -> Ranges {
        std::mem::take(&mut self.just_closed)
    }

    /// Takes note of a read.
    ///
    /// `found` are the ids that it saw, in order, of [`Gaps::ids`] and (with `tail`) of everything above [`Gaps::hi`]. It
    /// saw all of these up to `complete_to`. `holders` were looked up after its snapshot was taken.
    pub fn observe(&mut self, found: &[i64], complete_to: i64, tail: bool, holders: &BTreeSet<Holder>) {
        // What lies beyond cannot be open.
        let known = found.partition_point(|id| *id <= self.hi);
        self.strike_out(&found[..known], complete_to);
        self.look(holders);
        self.take_over(complete_to, holders);
        if tail {
            self.pass_over(found, holders);
        }
    }

    /// What was found has come; what was not, and had nobody left to come from before this read began, never will.
    fn strike_out(&mut self, found: &[i64], complete_to: i64) {
        for ranges in self.by_holders.values_mut().chain([&mut self.left_open]) {
            for id in found {
                ranges.remove(*id);
            }
        }
        if let Some(mut abandoned) = self.by_holders.remove(&BTreeSet::new()) {
            let unread = abandoned.split_above(complete_to);
            self.closed = self.closed.saturating_add(abandoned.count());
            self.just_closed.extend(&abandoned);
            self.by_holders.insert(BTreeSet::new(), unread);
        }
        self.by_holders.retain(|_, ranges| !ranges.is_empty());
    }

    /// Strikes out the holders that have ended.
    fn look(&mut self, holders: &BTreeSet<Holder>) {
        let prepared: BTreeSet<Holder> = holders.iter().filter(|holder| holder.prepared).cloned().collect();
        let newly_prepared: BTreeSet<Holder> = prepared.difference(&self.prepared).cloned().collect();
        self.changed = false;
        for (before, ranges) in std::mem::take(&mut self.by_holders) {
            let mut left: BTreeSet<Holder> = before.intersection(holders).cloned().collect();
            let one_is_gone = left.len() < before.len();
            if one_is_gone || before.iter().any(|holder| !holder.prepared) {
                // One that is gone may go on under the name of one that was prepared since. One that is still listed
                // may as well: the list is not taken at one moment, so it can show a transaction under both names.
                left.extend(newly_prepared.iter().cloned());
            }
            self.changed |= one_is_gone;
            self.by_holders.entry(left).or_default().extend(&ranges);
        }
        self.prepared = prepared;
    }

    /// Of what an earlier reader left open, a read that saw all of it did not find these: they may come from a transaction
    /// that holds the lock now, or have come from one that ended between the snapshot and the look. A row that was in
    /// flight and is gone since is among them too, and is closed like the others.
    fn take_over(&mut self, complete_to: i64, holders: &BTreeSet<Holder>) {
        let unread = self.left_open.split_above(complete_to);
        let missing = std::mem::replace(&mut self.left_open, unread);
        if !missing.is_empty() && self.proof == Proof::Required {
            self.by_holders.entry(holders.clone()).or_default().extend(&missing);
            self.changed = true;
        }
    }

    /// Whether `count` ids up to `last` are all those above [`Gaps::hi`].
    pub(super) fn is_next(&self, last: i64, count: usize) -> bool {
        i64::try_from(count).is_ok_and(|count| self.hi.checked_add(count) == Some(last))
    }

    /// Moves up to an id below which all were found.
    pub(super) fn advance(&mut self, hi: i64) {
        self.hi = hi;
    }

    /// Moves up to the highest id that was found; what lies between may come from a transaction that holds the lock
    /// now, or has come from one that ended between the snapshot and the look.
    pub(super) fn pass_over(&mut self, found: &[i64], holders: &BTreeSet<Holder>) {
        let mut missing = Ranges::default();
        let mut next = self.hi.saturating_add(1);
        for id in found.iter().copied().filter(|id| *id > self.hi) {
            missing.insert(next..=id - 1);
            next = id.saturating_add(1);
        }
        self.hi = next - 1;
        if !missing.is_empty() && self.proof == Proof::Required {
            self.by_holders.entry(holders.clone()).or_default().extend(&missing);
            self.changed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that is prepared has the name that it had, or after a restart of the server another one.
    fn holder(name: &str) -> Holder {
        let prepared = name.ends_with(" prepared");
        let name = name.trim_end_matches(" prepared").to_owned();
        Holder { name, prepared }
    }

    fn holders(names: &[&str]) -> BTreeSet<Holder> {
        names.iter().map(|name| holder(name)).collect()
    }

    fn observe(gaps: &mut Gaps, found: &[i64], names: &[&str]) {
        gaps.observe(found, i64::MAX, true, &holders(names));
    }

    #[test]
    fn a_gap_is_closed_only_when_all_holders_have_ended_and_one_more_read_found_nothing() {
        let mut gaps = Gaps::after(0, Proof::Required);
        observe(&mut gaps, &[1, 4], &["a", "b"]);
        assert_eq!((gaps.hi(), gaps.first(), gaps.ids()), (4, Some(2), Ranges::of(2..=3)));
        observe(&mut gaps, &[], &["a", "b"]);
        assert!(!gaps.worth_a_look(), "both are still at work");
        observe(&mut gaps, &[], &["b", "c"]);
        assert!(gaps.worth_a_look(), "a has ended");
        observe(&mut gaps, &[2], &["b", "c"]);
        assert_eq!(gaps.first(), Some(3), "3 may come from b");
        observe(&mut gaps, &[], &["c"]);
        assert_eq!(gaps.open(), 1, "no proof before one more read");
        observe(&mut gaps, &[], &["c"]);
        assert_eq!((gaps.open(), gaps.closed(), gaps.first()), (0, 1, None));
    }

    /// What one left open may have been taken by a transaction that works to this day.
    #[test]
    fn what_an_earlier_reader_left_open_is_closed_by_a_proof_of_its_own() {
        let state: ReaderState = "9;2-4,7-7".parse().unwrap();
        let mut gaps = Gaps::resume(&state, Proof::Required);
        assert_eq!((gaps.hi(), gaps.first(), gaps.open()), (9, Some(2), 4));
        gaps.observe(&[3], 5, true, &holders(&["a"]));
        assert_eq!(gaps.open(), 3, "3 was there, and 7 was not looked at");
        observe(&mut gaps, &[], &["a", "b"]);
        observe(&mut gaps, &[], &["b"]);
        assert_eq!(gaps.open(), 3, "a has ended, and 7 may come from b");
        observe(&mut gaps, &[2], &["b"]);
        assert_eq!((gaps.ids(), gaps.closed()), (Ranges::of(7..=7), 1), "4 was rolled back");
        observe(&mut gaps, &[], &[]);
        observe(&mut gaps, &[], &[]);
        assert_eq!((gaps.open(), gaps.closed()), (0, 2));
    }

    #[test]
    fn a_gap_without_a_holder_is_closed_by_the_next_read_and_not_by_the_same() {
        let mut gaps = Gaps::after(10, Proof::Required);
        observe(&mut gaps, &[12], &[]);
        assert_eq!((gaps.open(), gaps.worth_a_look()), (1, true));
        observe(&mut gaps, &[11], &[]);
        assert_eq!((gaps.open(), gaps.closed()), (0, 0), "it had committed in between");
    }

    #[test]
    fn a_read_that_ended_early_proves_nothing_about_the_rest() {
        let mut gaps = Gaps::after(0, Proof::Required);
        observe(&mut gaps, &[2, 4], &[]);
        gaps.observe(&[], 2, false, &holders(&[]));
        assert_eq!((gaps.first(), gaps.closed()), (Some(3), 1));
        observe(&mut gaps, &[3], &[]);
        assert_eq!(gaps.open(), 0);
    }

    #[test]
    fn a_transaction_that_is_prepared_goes_on_under_another_name() {
        let mut gaps = Gaps::after(0, Proof::Required);
        observe(&mut gaps, &[2], &["3/7", "-1/100 prepared"]);
        observe(&mut gaps, &[], &["-1/100 prepared", "-1/200 prepared"]);
        observe(&mut gaps, &[], &["-1/200 prepared"]);
        observe(&mut gaps, &[], &["-1/200 prepared"]);
        assert_eq!(gaps.open(), 1, "-1/200 may be what 3/7 was");
        observe(&mut gaps, &[], &[]);
        observe(&mut gaps, &[], &[]);
        assert_eq!((gaps.open(), gaps.closed()), (0, 1));
    }

    #[test]
    fn a_transaction_that_keeps_its_name_when_it_is_prepared_is_followed() {
        let mut gaps = Gaps::after(0, Proof::Required);
        observe(&mut gaps, &[2], &["3/7"]);
        for _ in 0..3 {
            observe(&mut gaps, &[], &["3/7 prepared"]);
            assert_eq!(gaps.open(), 1, "it may come yet");
        }
        // After a restart of the server.
        observe(&mut gaps, &[], &["-1/100 prepared"]);
        observe(&mut gaps, &[], &["-1/100 prepared"]);
        assert_eq!(gaps.open(), 1);
        observe(&mut gaps, &[], &[]);
        observe(&mut gaps, &[], &[]);
        assert_eq!((gaps.open(), gaps.closed()), (0, 1));
    }

    #[test]
    fn a_transaction_that_one_look_shows_under_both_of_its_names_is_followed() {
        let mut gaps = Gaps::after(0, Proof::Required);
        observe(&mut gaps, &[2], &["3/7"]);
        observe(&mut gaps, &[], &["3/7", "-1/100 prepared"]);
        for _ in 0..3 {
            observe(&mut gaps, &[], &["-1/100 prepared"]);
            assert_eq!(gaps.open(), 1, "-1/100 is what 3/7 was");
        }
    }

    #[test]
    fn what_was_closed_is_told_once() {
        let mut gaps = Gaps::after(0, Proof::Required);
        observe(&mut gaps, &[3], &[]);
        assert!(gaps.take_closed().is_empty(), "not closed yet");
        observe(&mut gaps, &[], &[]);
        assert_eq!(gaps.take_closed(), Ranges::of(1..=2));
        assert!(gaps.take_closed().is_empty());
    }

    #[test]
    fn one_long_transaction_is_one_entry_however_much_is_rolled_back_beside_it() {
        let mut gaps = Gaps::after(0, Proof::Required);
        for id in 1..=1_000 {
            let brief = format!("b{id}");
            observe(&mut gaps, &[3 * id], &["long", &brief]);
        }
        observe(&mut gaps, &[], &["long"]);
        assert_eq!((gaps.open(), gaps.by_holders.len()), (2_000, 1));
    }
}
