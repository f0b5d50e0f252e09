//! The circuit breaker by example, and against a model that keeps everything and computes nothing ahead.

use std::time::{Duration, Instant};

use posthaste_core::breaker::{Answer, Breaker, BreakerConfig, CircuitState, Permit, Refused, Room};
use posthaste_core::{Outcome, PublishError};
use proptest::prelude::*;

const OPEN_FOR: Duration = Duration::from_secs(30);

fn permit(breaker: &mut Breaker, now: Instant) -> Permit {
    breaker.try_acquire(now).0.expect("a call is permitted")
}

fn call(breaker: &mut Breaker, now: Instant, answer: Answer) {
    let permit = permit(breaker, now);
    breaker.answer(permit, answer, now);
}

fn opened(now: Instant) -> Breaker {
    let mut breaker = Breaker::new(BreakerConfig::default());
    (0..5).for_each(|_| call(&mut breaker, now, Answer::Failure));
    assert_eq!(breaker.state(), CircuitState::Open);
    breaker
}

#[test]
fn it_opens_at_half_of_at_least_five_calls() {
    let now = Instant::now();
    let mut breaker = Breaker::new(BreakerConfig::default());
    (0..4).for_each(|_| call(&mut breaker, now, Answer::Failure));
    assert_eq!(breaker.state(), CircuitState::Closed, "four calls are too few");
    let fifth = permit(&mut breaker, now);
    let transition = breaker
        .answer(fifth, Answer::Success, now)
        .expect("four of five failed");
    assert_eq!(
        (transition.from, transition.to),
        (CircuitState::Closed, CircuitState::Open)
    );
    assert_eq!(transition.failure_rate, Some(0.8));
    assert_eq!(breaker.room(now), Room::Shut(now + OPEN_FOR));
}

#[test]
fn a_circuit_that_was_tripped_is_closed_by_one_call_and_opened_again_by_one() {
    let now = Instant::now();
    let mut breaker = Breaker::new(BreakerConfig::default());
    let transition = breaker.trip(now).expect("it was closed");
    assert_eq!(
        (transition.from, transition.to, transition.failure_rate),
        (CircuitState::Closed, CircuitState::Open, None)
    );
    assert_eq!(breaker.trip(now + OPEN_FOR / 2), None, "its time is not made longer");
    let later = now + OPEN_FOR;
    assert_eq!(breaker.room(later), Room::Trials(1));
    let trial = permit(&mut breaker, later);
    assert!(breaker.try_acquire(later).0.is_err(), "one at a time");
    breaker.answer(trial, Answer::Nothing, later);
    assert_eq!(breaker.room(later), Room::Trials(1), "another one");
    assert_eq!(
        breaker.trip(later).map(|change| change.from),
        Some(CircuitState::HalfOpen)
    );
    call(&mut breaker, later + OPEN_FOR, Answer::Success);
    assert_eq!(breaker.state(), CircuitState::Closed);
    // What its own calls show afterwards takes as many trials as are configured.
    (0..5).for_each(|_| call(&mut breaker, later, Answer::Failure));
    assert_eq!(breaker.room(later + OPEN_FOR), Room::Trials(3));
}

#[test]
fn without_a_breaker_nothing_is_tripped() {
    let config = BreakerConfig {
        enabled: false,
        ..BreakerConfig::default()
    };
    let mut breaker = Breaker::new(config);
    assert_eq!(breaker.trip(Instant::now()), None);
    assert_eq!(breaker.state(), CircuitState::Closed);
}

#[test]
fn only_the_last_ten_calls_are_looked_at() {
    let now = Instant::now();
    let mut breaker = Breaker::new(BreakerConfig::default());
    (0..10).for_each(|_| call(&mut breaker, now, Answer::Success));
    (0..4).for_each(|_| call(&mut breaker, now, Answer::Failure));
    assert_eq!(breaker.state(), CircuitState::Closed, "four of ten");
    call(&mut breaker, now, Answer::Failure);
    assert_eq!(breaker.state(), CircuitState::Open, "five of ten");
}

#[test]
fn failures_that_say_nothing_about_the_broker_are_not_counted() {
    let now = Instant::now();
    let mut breaker = Breaker::new(BreakerConfig::default());
    for _ in 0..100 {
        for error in [
            PublishError::transient("m"),
            PublishError::permanent("m"),
            PublishError::unknown("m"),
        ] {
            call(&mut breaker, now, Answer::from(&Outcome::Failed(error)));
        }
        call(&mut breaker, now, Answer::from(&Outcome::NotAttempted));
    }
    assert_eq!(breaker.state(), CircuitState::Closed);
    (0..5).for_each(|_| {
        let failed = Outcome::Failed(PublishError::transport("away"));
        call(&mut breaker, now, Answer::from(&failed));
    });
    assert_eq!(breaker.state(), CircuitState::Open, "nor do they water the rate down");
}

#[test]
fn it_refuses_for_thirty_seconds_and_then_lets_three_trials_through() {
    let start = Instant::now();
    let mut breaker = opened(start);
    let early = start + Duration::from_millis(29_999);
    let until = start + OPEN_FOR;
    assert_eq!(breaker.try_acquire(early).0, Err(Refused { until: Some(until) }));
    assert_eq!(breaker.room(until), Room::Trials(3));
    assert_eq!(breaker.state(), CircuitState::Open, "nobody has asked yet");
    let (first, transition) = breaker.try_acquire(until);
    assert_eq!(transition.unwrap().to, CircuitState::HalfOpen);
    let trials = [first.unwrap(), permit(&mut breaker, until), permit(&mut breaker, until)];
    assert_eq!(breaker.try_acquire(until).0, Err(Refused { until: None }));
    for trial in trials {
        assert_eq!(breaker.state(), CircuitState::HalfOpen);
        assert!(
            breaker.try_acquire(until).0.is_err(),
            "three in all, not three at a time"
        );
        breaker.answer(trial, Answer::Success, until);
    }
    assert_eq!(breaker.state(), CircuitState::Closed);
    (0..4).for_each(|_| call(&mut breaker, until, Answer::Failure));
    assert_eq!(breaker.state(), CircuitState::Closed, "it begins with an empty window");
}

#[test]
fn one_failed_trial_opens_it_again_for_the_whole_time() {
    let mut breaker = opened(Instant::now());
    let now = Instant::now() + OPEN_FOR;
    let [first, second, third] = [(); 3].map(|()| permit(&mut breaker, now));
    breaker.answer(first, Answer::Success, now);
    let later = now + Duration::from_secs(5);
    let transition = breaker.answer(second, Answer::Failure, later).unwrap();
    assert_eq!(
        (transition.from, transition.to),
        (CircuitState::HalfOpen, CircuitState::Open)
    );
    assert_eq!(breaker.room(later), Room::Shut(later + OPEN_FOR));
    assert_eq!(breaker.answer(third, Answer::Success, later), None, "a late answer");
    assert_eq!(breaker.state(), CircuitState::Open);
}

#[test]
fn a_trial_that_says_nothing_gives_its_place_back() {
    let mut breaker = opened(Instant::now());
    let now = Instant::now() + OPEN_FOR;
    for _ in 0..10 {
        call(&mut breaker, now, Answer::Nothing);
    }
    assert_eq!(
        (breaker.state(), breaker.room(now)),
        (CircuitState::HalfOpen, Room::Trials(3))
    );
}

#[test]
fn answers_of_an_earlier_state_change_nothing() {
    let now = Instant::now();
    let mut breaker = Breaker::new(BreakerConfig::default());
    let late: Vec<_> = (0..20).map(|_| permit(&mut breaker, now)).collect();
    (0..5).for_each(|_| call(&mut breaker, now, Answer::Failure));
    let trials = now + OPEN_FOR;
    let trial = permit(&mut breaker, trials);
    let mut late = late.into_iter();
    for late in late.by_ref().take(10) {
        assert_eq!(breaker.answer(late, Answer::Failure, trials), None);
    }
    for late in late.by_ref().take(5) {
        assert_eq!(breaker.answer(late, Answer::Success, trials), None);
    }
    assert_eq!(breaker.room(trials), Room::Trials(2));
    breaker.answer(trial, Answer::Success, trials);
    (0..2).for_each(|_| call(&mut breaker, trials, Answer::Success));
    for late in late {
        assert_eq!(breaker.answer(late, Answer::Failure, trials), None);
    }
    assert_eq!(breaker.state(), CircuitState::Closed);
}

#[test]
fn without_a_breaker_everything_goes_through() {
    let now = Instant::now();
    let config = BreakerConfig {
        enabled: false,
        ..BreakerConfig::default()
    };
    let mut breaker = Breaker::new(config);
    (0..100).for_each(|_| call(&mut breaker, now, Answer::Failure));
    assert_eq!(breaker.room(now), Room::Free);
}

#[test]
fn settings_that_cannot_work_are_named() {
    let good = BreakerConfig::default;
    assert_eq!(good().validate(), Ok(()));
    let refused = |config: BreakerConfig| config.validate().unwrap_err().field;
    assert_eq!(refused(BreakerConfig { window: 0, ..good() }), "window");
    assert_eq!(
        refused(BreakerConfig {
            minimum_calls: 11,
            ..good()
        }),
        "minimum_calls"
    );
    assert_eq!(
        refused(BreakerConfig {
            minimum_calls: 0,
            ..good()
        }),
        "minimum_calls"
    );
    for failure_rate in [0.0, -1.0, 1.1, f64::NAN] {
        assert_eq!(refused(BreakerConfig { failure_rate, ..good() }), "failure_rate");
    }
    assert_eq!(
        refused(BreakerConfig {
            open_for: Duration::ZERO,
            ..good()
        }),
        "open_for"
    );
    assert_eq!(refused(BreakerConfig { trials: 0, ..good() }), "trials");
}

/// Everything that happened, in order; every question is answered from the beginning.
#[derive(Default)]
struct Model {
    phases: Vec<Phase>,
}

/// What happened between two changes of state.
struct Phase {
    state: CircuitState,
    since: Duration,
    permitted: u32,
    answers: Vec<Answer>,
}

impl Model {
    fn present(&mut self) -> &mut Phase {
        if self.phases.is_empty() {
            self.begin(CircuitState::Closed, Duration::ZERO);
        }
        self.phases.last_mut().unwrap()
    }

    fn begin(&mut self, state: CircuitState, since: Duration) {
        self.phases.push(Phase {
            state,
            since,
            permitted: 0,
            answers: Vec::new(),
        });
    }

    /// Permits a call and returns in which phase.
    fn ask(&mut self, config: &BreakerConfig, now: Duration) -> Option<usize> {
        let phase = self.present();
        if phase.state == CircuitState::Open {
            if now < phase.since + config.open_for {
                return None;
            }
            self.begin(CircuitState::HalfOpen, now);
        }
        let phase = self.present();
        let given_back = phase
            .answers
            .iter()
            .filter(|answer| **answer == Answer::Nothing)
            .count();
        if phase.state == CircuitState::HalfOpen && phase.permitted as usize - given_back >= config.trials as usize {
            return None;
        }
        phase.permitted += 1;
        Some(self.phases.len() - 1)
    }

    fn answer(&mut self, config: &BreakerConfig, phase: usize, answer: Answer, now: Duration) {
        if phase + 1 != self.phases.len() {
            return;
        }
        let phase = self.present();
        phase.answers.push(answer);
        let counted: Vec<_> = phase
            .answers
            .iter()
            .filter(|answer| **answer != Answer::Nothing)
            .collect();
        let failures = |calls: &[&Answer]| calls.iter().filter(|answer| ***answer == Answer::Failure).count();
        match phase.state {
            CircuitState::Closed => {
                let latest = &counted[counted.len().saturating_sub(config.window as usize)..];
                let needed = (0..=latest.len()).find(|failed| ratio(*failed, latest.len()) >= config.failure_rate);
                let reached = answer != Answer::Nothing && needed.is_some_and(|needed| failures(latest) >= needed);
                if latest.len() >= config.minimum_calls as usize && reached {
                    self.begin(CircuitState::Open, now);
                }
            }
            CircuitState::HalfOpen if failures(&counted) > 0 => self.begin(CircuitState::Open, now),
            CircuitState::HalfOpen if counted.len() == config.trials as usize => {
                self.begin(CircuitState::Closed, now);
            }
            CircuitState::HalfOpen | CircuitState::Open => {}
        }
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    f64::from(u32::try_from(part).unwrap()) / f64::from(u32::try_from(whole).unwrap())
}

#[derive(Clone, Debug)]
enum Step {
    Ask,
    /// Answers one of the open calls, chosen by number.
    Answer(usize, Answer),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let answer = prop_oneof![4 => Just(Answer::Failure), 4 => Just(Answer::Success), 1 => Just(Answer::Nothing)];
    prop_oneof![
        5 => Just(Step::Ask),
        5 => (any::<usize>(), answer).prop_map(|(which, answer)| Step::Answer(which, answer)),
        1 => (0_u64..20_000).prop_map(Step::Wait),
    ]
}

fn config() -> impl Strategy<Value = BreakerConfig> {
    (1_u32..12, 1_u32..12, 1_u32..=100, 1_u64..30, 1_u32..5).prop_map(|(window, minimum, percent, seconds, trials)| {
        BreakerConfig {
            enabled: true,
            window,
            minimum_calls: minimum.min(window),
            failure_rate: f64::from(percent) / 100.0,
            open_for: Duration::from_secs(seconds),
            trials,
        }
    })
}

#[test]
fn calls_that_succeed_together_weigh_as_much_as_one_by_one() {
    let (config, now) = (BreakerConfig::default(), Instant::now());
    let failed = |breaker: &mut Breaker| {
        let permit = breaker.try_acquire(now).0.unwrap();
        breaker.answer(permit, Answer::Failure, now)
    };
    for (successes, failures) in [(4, 4), (5, 5), (6, 5), (1_000_000, 5)] {
        let mut breaker = Breaker::new(config.clone());
        assert_eq!(breaker.succeeded(successes, now), None);
        for _ in 1..failures {
            assert_eq!(failed(&mut breaker), None, "less than half of the latest ten");
        }
        assert!(failed(&mut breaker).is_some(), "{failures} after {successes}");
    }
    let mut open = Breaker::new(config);
    open.trip(now);
    assert_eq!(open.succeeded(100, now), None, "what comes late changes nothing");
    assert_eq!(open.state(), CircuitState::Open);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn it_does_what_the_model_does(config in config(), steps in prop::collection::vec(step(), 0..300)) {
        let start = Instant::now();
        let mut now = Duration::ZERO;
        let (mut breaker, mut model) = (Breaker::new(config.clone()), Model::default());
        let mut open: Vec<(Permit, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(millis) => now += Duration::from_millis(millis),
                Step::Ask => {
                    let room = breaker.room(start + now);
                    let (asked, expected) = (breaker.try_acquire(start + now).0, model.ask(&config, now));
                    prop_assert_eq!(asked.is_ok(), expected.is_some(), "in {:?}", breaker.state());
                    prop_assert_eq!(asked.is_ok(), !matches!(room, Room::Shut(_) | Room::Trials(0)));
                    open.extend(asked.ok().zip(expected));
                }
                Step::Answer(which, answer) => {
                    if open.is_empty() { continue }
                    let (permit, phase) = open.swap_remove(which % open.len());
                    let before = breaker.state();
                    let transition = breaker.answer(permit, answer, start + now);
                    model.answer(&config, phase, answer, now);
                    prop_assert_eq!(transition.map(|change| (change.from, change.to)),
                        (before != breaker.state()).then(|| (before, breaker.state())));
                }
            }
            prop_assert_eq!(breaker.state(), model.present().state);
        }
        // Whatever happened, it is not stuck: once its calls are answered and time has passed, a call is permitted.
        for (permit, _) in open {
            breaker.answer(permit, Answer::Nothing, start + now);
        }
        let asked = breaker.try_acquire(start + now + config.open_for).0;
        prop_assert!(asked.is_ok(), "{:?}", asked);
    }
}
