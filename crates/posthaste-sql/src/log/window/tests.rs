mod model;

use std::collections::BTreeSet;

use proptest::prelude::*;
use smol_str::SmolStr;

use self::model::Model;
use super::*;

const TOKENS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// Reads on: so many rows, with holes and lanes by these numbers.
    Append {
        rows: Vec<(u8, u8)>,
        limit: usize,
        token: usize,
        rule: u8,
    },
    /// Reads rows again that may go, or ids that were passed over.
    Again {
        rows: Vec<(u16, u8)>,
        limit: usize,
        token: usize,
        rule: u8,
    },
    Insert(u16, u8),
    HandOut(u16, usize),
    Deliver(u16, usize),
    DeliverAll(usize),
    Settle(u16),
    PutBack(u16, Option<u8>),
    PutBackAll(usize),
    Fail(u16),
    RefuseFailure(u16),
    RefuseVerdict(u16),
    WriteFailures,
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0_u16..120;
    let token = || 0..TOKENS;
    let limit = || prop_oneof![1_usize..6, Just(usize::MAX)];
    prop_oneof![
        6 => (prop::collection::vec((1_u8..3, 0_u8..5), 1..20), limit(), token(), 0_u8..3)
            .prop_map(|(rows, limit, token, rule)| Step::Append { rows, limit, token, rule }),
        3 => (prop::collection::vec((id(), 0_u8..5), 1..10), limit(), token(), 0_u8..3)
            .prop_map(|(rows, limit, token, rule)| Step::Again { rows, limit, token, rule }),
        1 => (id(), 0_u8..5).prop_map(|(id, lane)| Step::Insert(id, lane)),
        2 => (id(), token()).prop_map(|(id, token)| Step::HandOut(id, token)),
        4 => (id(), token()).prop_map(|(id, token)| Step::Deliver(id, token)),
        2 => token().prop_map(Step::DeliverAll),
        2 => id().prop_map(Step::Settle),
        2 => (id(), prop::option::of(0_u8..5)).prop_map(|(id, due)| Step::PutBack(id, due)),
        1 => token().prop_map(Step::PutBackAll),
        2 => id().prop_map(Step::Fail),
        1 => id().prop_map(Step::RefuseFailure),
        1 => id().prop_map(Step::RefuseVerdict),
        1 => Just(Step::WriteFailures),
        1 => (0_u8..4).prop_map(Step::Wait),
    ]
}

/// Lane 0 is none.
fn lane(number: u8) -> Option<Lane> {
    let key = SmolStr::new(number.to_string());
    (number > 0).then(|| (SmolStr::new("t"), key))
}

fn rule(number: u8) -> (LaneRule, (bool, bool)) {
    match number {
        0 => (LaneRule::Unordered, (false, false)),
        1 => (LaneRule::OneBatch, (true, false)),
        _ => (LaneRule::Pipelined, (true, true)),
    }
}

fn sort(
    window: &mut Window,
    rows: &[(i64, Option<Lane>)],
    limit: usize,
    token: LeaseToken,
    rule: LaneRule,
) -> Vec<i64> {
    let mut handed_out = Vec::new();
    let mut pass = window.pass(token, rule);
    for (id, lane) in rows {
        if pass.take_in(*id, lane.as_ref()) == Turn::MayGo {
            if handed_out.len() == limit {
                pass.keep(*id);
            } else {
                pass.hand_out(*id);
                handed_out.push(*id);
            }
        }
    }
    handed_out
}

struct Both {
    window: Window,
    model: Model,
    tokens: [LeaseToken; TOKENS],
    hi: i64,
    now: Instant,
}

impl Both {
    fn sort(
        &mut self,
        rows: &[(i64, Option<Lane>)],
        limit: usize,
        token: usize,
        number: u8,
    ) -> Result<(), TestCaseError> {
        let (token, (rule, flags)) = (self.tokens[token], rule(number));
        let expected = self.model.sort(rows, limit, token, flags);
        prop_assert_eq!(sort(&mut self.window, rows, limit, token, rule), expected);
        Ok(())
    }

    fn apply(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let (window, model, now) = (&mut self.window, &mut self.model, self.now);
        match step {
            Step::Append {
                rows,
                limit,
                token,
                rule,
            } => {
                let mut read = Vec::new();
                for (ahead, number) in rows {
                    self.hi += i64::from(*ahead);
                    read.push((self.hi, lane(*number)));
                }
                self.sort(&read, *limit, *token, *rule)?;
            }
            Step::Again {
                rows,
                limit,
                token,
                rule,
            } => {
                let known = |id: i64| self.model.lane(id).cloned();
                let is_known = |id: i64| self.model.standings().any(|(known, _)| known == id);
                let mut read: Vec<(i64, Option<Lane>)> = rows
                    .iter()
                    .map(|(id, number)| (i64::from(*id), *number))
                    // A row has one lane, whenever it is read.
                    .map(|(id, number)| (id, if is_known(id) { known(id) } else { lane(number) }))
                    .collect();
                read.sort_by_key(|(id, _)| *id);
                read.dedup_by_key(|(id, _)| *id);
                // What is handed out or has failed is not read again.
                read.retain(|(id, _)| !is_known(*id) || self.model.is_waiting(*id));
                self.hi = self.hi.max(read.last().map_or(0, |(id, _)| *id));
                self.sort(&read, *limit, *token, *rule)?;
            }
            Step::Insert(id, number) => {
                let id = i64::from(*id);
                self.hi = self.hi.max(id);
                window.insert(id, lane(*number).as_ref());
                model.insert(id, lane(*number));
            }
            Step::HandOut(id, token) => {
                window.hand_out(i64::from(*id), self.tokens[*token]);
                model.hand_out(i64::from(*id), self.tokens[*token]);
            }
            Step::Deliver(id, token) => {
                let (id, token) = (i64::from(*id), self.tokens[*token]);
                let held = model.is_held(id, token);
                if held {
                    model.settle(id);
                }
                prop_assert_eq!(window.deliver(id, token), held);
            }
            Step::DeliverAll(token) => {
                let token = self.tokens[*token];
                for id in 1..=self.hi {
                    if model.is_held(id, token) {
                        model.settle(id);
                        prop_assert!(window.deliver(id, token));
                    }
                }
            }
            Step::Settle(id) => {
                window.settle(i64::from(*id));
                model.settle(i64::from(*id));
            }
            Step::PutBack(id, due) => {
                let due = due.map(|seconds| now + Duration::from_secs(seconds.into()));
                window.put_back(i64::from(*id), due);
                model.put_back(i64::from(*id), due);
            }
            Step::PutBackAll(token) => {
                window.put_back_all(self.tokens[*token]);
                model.put_back_all(self.tokens[*token]);
            }
            Step::Fail(id) => {
                let failure = Failure {
                    error: Some(id.to_string()),
                    ..Failure::parked(i64::from(*id))
                };
                window.fail(failure.clone());
                model.fail(failure);
            }
            Step::RefuseFailure(id) => {
                let news = model.refuse_failure(i64::from(*id), now);
                prop_assert_eq!(window.refuse_failure(i64::from(*id), now), news);
            }
            Step::RefuseVerdict(id) => {
                window.refuse_verdict(i64::from(*id), now);
                model.refuse_verdict(i64::from(*id), now);
            }
            Step::WriteFailures => {
                for failure in model.failures(now) {
                    window.settle(failure.id);
                    model.settle(failure.id);
                }
            }
            Step::Wait(seconds) => self.now += Duration::from_secs((*seconds).into()),
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let (window, model, now) = (&self.window, &self.model, self.now);
        prop_assert_eq!(window.first(), model.first());
        prop_assert_eq!((window.len(), window.in_flight()), (model.len(), model.in_flight()));
        prop_assert_eq!(
            window.standings().collect::<Vec<_>>(),
            model.standings().collect::<Vec<_>>()
        );
        prop_assert_eq!(window.waiting(), model.waiting());
        prop_assert_eq!(window.has_waiting(), !model.waiting().is_empty());
        prop_assert_eq!(window.unsettled().iter().flatten().count(), model.len());
        prop_assert_eq!(window.failures(now), model.failures(now));
        for limit in [1, 4, usize::MAX] {
            prop_assert_eq!(window.free(now, limit), model.free(now, limit));
        }
        let lanes = |lanes: Vec<&Lane>| lanes.into_iter().cloned().collect::<BTreeSet<Lane>>();
        let in_flight = lanes(window.lanes_in_flight().collect());
        prop_assert_eq!(in_flight, lanes(model.lanes_in_flight().collect()));
        for id in 0..self.hi + 2 {
            prop_assert_eq!(window.lane(id), model.lane(id));
            prop_assert_eq!(window.is_waiting(id), model.is_waiting(id));
        }
        for id in (0..self.hi + 2).step_by(9) {
            for lane in (1..5).filter_map(lane) {
                prop_assert_eq!(window.is_behind(id, &lane), model.is_behind(id, &lane));
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_window_behaves_like_the_simple_one(steps in prop::collection::vec(step(), 1..60)) {
        let mut both = Both {
            window: Window::default(),
            model: Model::default(),
            tokens: [(); TOKENS].map(|()| LeaseToken::new()),
            hi: 0,
            now: Instant::now(),
        };
        for step in &steps {
            both.apply(step)?;
            both.compare()?;
        }
    }
}

/// Far more rows than a chunk has, settled in any order, with rows that come late among them.
#[test]
fn many_rows_are_found_in_whatever_order_they_are_settled() {
    let token = LeaseToken::new();
    let (mut window, mut left) = (Window::default(), BTreeSet::new());
    for id in (1..=10_000)
        .filter(|id| id % 3 != 0)
        .chain((1..=10_000).filter(|id| id % 3 == 0))
    {
        window.insert(id, lane(u8::try_from(id % 7).unwrap()).as_ref());
        window.hand_out(id, token);
        left.insert(id);
    }
    let mut next = 1_i64;
    while !left.is_empty() {
        next = (next + 7_919) % 10_007;
        if left.remove(&next) {
            assert!(window.deliver(next, token));
        }
        assert!(!window.deliver(next, token), "settled once");
        assert_eq!((window.first(), window.len()), (left.first().copied(), left.len()));
    }
    assert_eq!((window.in_flight(), window.lanes_in_flight().count()), (0, 0));
}

/// What is settled takes no memory, however long one row keeps the position down.
#[test]
fn a_row_that_waits_for_long_keeps_no_others() {
    let token = LeaseToken::new();
    let mut window = Window::default();
    for id in 1..=200_000 {
        window.insert(id, lane(1).as_ref());
        window.hand_out(id, token);
        if id % 1_000 != 0 {
            window.deliver(id, token);
        }
    }
    assert_eq!((window.len(), window.first()), (200, Some(1_000)));
    assert!(window.rows.memory() < 50_000, "{}", window.rows.memory());
}

#[test]
fn lanes_that_come_and_go_are_forgotten() {
    let mut window = Window::default();
    for id in 1..=100_000 {
        window.insert(id, Some(&(SmolStr::default(), SmolStr::new(id.to_string()))));
        window.settle(id);
    }
    assert!(window.lanes.count() < 5_000, "{}", window.lanes.count());
}
