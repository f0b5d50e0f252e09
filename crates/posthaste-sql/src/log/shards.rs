//! The shards of a log, and who reads which of them.
//!
//! Every instance sees the same seats and the same instances, and works out for itself what to take and what to hand over.
//! Once they agree on who is there, each has its quota, and no quotas differ by more than one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use md5::{Digest, Md5};

/// Rows of a shard are numbered from its own number times two to the power of this on, so that no two rows of a log have the
/// same.
pub const SHARD_BITS: u32 = 44;

/// A shard as an instance sees it; `I` is how instances know each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat<I> {
    /// Its number.
    pub shard: i32,
    /// Who reads it; `None` if nobody does, or its lease is over.
    pub owner: Option<I>,
}

/// What an instance is to do about its seats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeatPlan {
    /// How many of the free ones it may take.
    pub take: usize,
    /// How many it should have beyond those that it has, free or not.
    pub lacking: usize,
    /// Those that it gives up, once what it handed out of them is answered.
    pub hand_over: Vec<i32>,
}

/// How many shards an instance should have, given all that are there. Where they cannot have equally many, those that have
/// most of them now have one more, so that one who comes does not set them moving.
pub fn quota<I: Copy + Ord>(seats: &[Seat<I>], instances: &[I], own: I) -> usize {
    let spread = spread(seats);
    let mut instances: Vec<(Reverse<usize>, I)> = instances
        .iter()
        .copied()
        .chain([own])
        .map(|instance| (Reverse(spread.get(&instance).copied().unwrap_or(0)), instance))
        .collect();
    instances.sort_unstable();
    instances.dedup();
    let place = instances.iter().position(|(_, instance)| *instance == own).unwrap_or(0);
    seats.len() / instances.len() + usize::from(place < seats.len() % instances.len())
}

/// What to do, given the seats and the instances that are there. Those of other instances are theirs until they hand them
/// over or their lease is over.
pub fn plan_seats<I: Copy + Ord>(seats: &[Seat<I>], instances: &[I], own: I) -> SeatPlan {
    let quota = quota(seats, instances, own);
    let mut held: Vec<i32> = seats
        .iter()
        .filter(|seat| seat.owner == Some(own))
        .map(|seat| seat.shard)
        .collect();
    held.sort_unstable();
    let free = seats.iter().filter(|seat| seat.owner.is_none()).count();
    let lacking = quota.saturating_sub(held.len());
    SeatPlan {
        take: free.min(lacking),
        lacking,
        hand_over: held.split_off(quota.min(held.len())),
    }
}

/// A number of 31 bits by which a key, or the id of a message without one, finds its shard: the first four bytes of its MD5,
/// which every database and every language can compute too. In PostgreSQL:
/// `('x' || left(md5(key), 8))::bit(32)::integer & 2147483647`.
pub fn shard_hash(key: &str) -> u32 {
    let [a, b, c, d, ..] = <[u8; 16]>::from(Md5::digest(key));
    u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff
}

/// How many shards each instance has.
pub fn spread<I: Copy + Ord>(seats: &[Seat<I>]) -> BTreeMap<I, usize> {
    let mut spread = BTreeMap::new();
    for owner in seats.iter().filter_map(|seat| seat.owner) {
        *spread.entry(owner).or_default() += 1;
    }
    spread
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Seats as a table has them, in which one taker at a time gets a free one.
    fn act(seats: &mut [Seat<u32>], plan: &SeatPlan, own: u32) {
        for seat in seats.iter_mut() {
            if plan.hand_over.contains(&seat.shard) {
                assert_eq!(seat.owner, Some(own), "nobody hands over what is not its own");
                seat.owner = None;
            }
        }
        for seat in seats.iter_mut().filter(|seat| seat.owner.is_none()).take(plan.take) {
            seat.owner = Some(own);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// An instance comes, or looks again.
        Acts(u32),
        /// One is gone, and its leases are over.
        Dies(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![4 => (1_u32..7).prop_map(Step::Acts), 1 => (1_u32..7).prop_map(Step::Dies)]
    }

    proptest! {
        /// However instances come and go, a few looks later all shards are read, evenly, and nothing moves any more.
        #[test]
        fn seats_are_spread_evenly_and_then_stay(shards in 1_i32..20, steps in prop::collection::vec(step(), 0..40)) {
            let mut seats: Vec<Seat<u32>> = (0..shards).map(|shard| Seat { shard, owner: None }).collect();
            let mut there: Vec<u32> = vec![1];
            for step in steps {
                match step {
                    Step::Acts(n) => {
                        if !there.contains(&n) {
                            there.push(n);
                        }
                        let plan = plan_seats(&seats, &there, n);
                        act(&mut seats, &plan, n);
                    }
                    Step::Dies(n) if there.len() > 1 => {
                        there.retain(|other| *other != n);
                        for seat in &mut seats {
                            seat.owner = seat.owner.filter(|owner| *owner != n);
                        }
                    }
                    Step::Dies(_) => {}
                }
            }
            for _ in 0..3 {
                for own in there.clone() {
                    let plan = plan_seats(&seats, &there, own);
                    act(&mut seats, &plan, own);
                }
            }
            prop_assert!(seats.iter().all(|seat| seat.owner.is_some()), "every shard is read");
            let spread = spread(&seats);
            let counts = there.iter().map(|own| spread.get(own).copied().unwrap_or(0));
            let (least, most) = (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0));
            prop_assert!(most - least <= 1, "{:?}", spread);
            for own in &there {
                prop_assert_eq!(plan_seats(&seats, &there, *own), SeatPlan::default(), "nothing moves any more");
            }
        }
    }

    #[test]
    fn a_key_has_the_hash_that_a_database_gives_it() {
        assert_eq!(shard_hash(""), 0xd41d_8cd9 & 0x7fff_ffff);
        assert_eq!(shard_hash("a"), 0x0cc1_75b9);
        assert_eq!(shard_hash("order-42"), shard_hash("order-42"));
    }

    #[test]
    fn one_instance_reads_all_and_a_second_one_gets_half() {
        let own = 1;
        let mut seats: Vec<Seat<u32>> = (0..8).map(|shard| Seat { shard, owner: None }).collect();
        assert_eq!(plan_seats(&seats, &[own], own).take, 8);
        for seat in &mut seats {
            seat.owner = Some(own);
        }
        let both = [own, 2];
        assert_eq!(plan_seats(&seats, &both, own).hand_over, [4, 5, 6, 7]);
        let second = plan_seats(&seats, &both, 2);
        assert_eq!((second.take, second.lacking), (0, 4), "none is free yet");
        assert_eq!(plan_seats(&seats, &[], own), SeatPlan::default(), "it is there itself");
    }

    #[test]
    fn the_only_shard_stays_with_its_reader_whoever_comes() {
        for own in 1..4 {
            let seats = [Seat {
                shard: 0,
                owner: Some(2),
            }];
            assert_eq!(plan_seats(&seats, &[1, 2, 3], own), SeatPlan::default());
        }
    }
}
