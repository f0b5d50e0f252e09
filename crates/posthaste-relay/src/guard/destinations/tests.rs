//! Which messages wait for a destination, and for how long.

use posthaste_core::Message;
use tokio::time::advance;

use super::*;
use crate::observed::{observe, observe_series};
use crate::reported::stream_of;

fn destinations() -> Destinations {
    Destinations::new(BreakerConfig::default(), RetryPolicy::default(), 100, "default")
}

fn unavailable(place: &str) -> Outcome {
    Outcome::Failed(PublishError::transport("connection refused").at(place))
}

/// The stream of a topic whose messages have neither type nor tenant.
fn stream(topic: &str) -> u64 {
    stream_of(&Message::new(topic, ""))
}

fn fail(destinations: &Destinations, topic: &str, times: u32) -> Finding {
    let stream = stream(topic);
    (0..times)
        .map(|_| {
            let pass = destinations.pass(stream, false).expect("it may be tried");
            destinations.answer(stream, pass, &unavailable(topic))
        })
        .last()
        .expect("it was tried")
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_unavailable_holds_its_own_messages_and_no_others() {
    let destinations = destinations();
    let finding = fail(&destinations, "a", 5);
    assert_eq!(finding.answer, Answer::Nothing, "the broker is there");
    assert!(finding.least_wait.is_some() && finding.in_doubt);
    let held = destinations.pass(stream("a"), false).unwrap_err();
    assert!((30..=38).contains(&held.wait.as_secs()), "{held:?}");
    assert!(held.reason.contains("connection refused"), "{held:?}");
    assert!(destinations.held(stream("a")).is_some());
    assert!(destinations.pass(stream("b"), false).unwrap().is_none());
    assert!(destinations.held(stream("b")).is_none());
}

#[tokio::test(start_paused = true)]
async fn after_the_open_time_three_are_tried_and_deliveries_let_all_through() {
    let destinations = destinations();
    fail(&destinations, "a", 5);
    advance(Duration::from_secs(31)).await;
    let passes: Vec<_> = (0..3).map(|_| destinations.pass(stream("a"), false).unwrap()).collect();
    assert_eq!(passes.iter().flatten().count(), 3);
    assert!(destinations.pass(stream("a"), false).is_err(), "three trials");
    for pass in passes {
        destinations.answer(stream("a"), pass, &Outcome::DELIVERED);
    }
    for _ in 0..10 {
        destinations.pass(stream("a"), false).unwrap();
    }
}

/// A few messages that look like an outage must not be the trials every time.
#[tokio::test(start_paused = true)]
async fn what_was_tried_in_vain_is_no_trial_while_others_wait() {
    let destinations = destinations();
    fail(&destinations, "a", 5);
    advance(Duration::from_secs(31)).await;
    let pass = destinations
        .pass(stream("a"), true)
        .expect("nothing else is known to wait");
    destinations.answer(stream("a"), pass, &unavailable("a"));
    assert!(
        destinations.pass(stream("a"), false).is_err(),
        "one that was not tried waits"
    );
    advance(Duration::from_secs(61)).await;
    assert!(destinations.pass(stream("a"), true).is_err());
    assert!(
        destinations.pass(stream("a"), false).unwrap().is_some(),
        "the other one is tried"
    );
    advance(Duration::from_secs(30)).await;
    assert!(destinations.pass(stream("a"), true).is_ok(), "the others may be gone");
}

/// A relay that is started anew, or another one, may find the destination there long before.
#[tokio::test(start_paused = true)]
async fn no_message_is_put_off_for_all_of_a_long_pause() {
    let destinations = destinations();
    let ten_minutes = PublishError::throttled(Duration::from_mins(10), "slower").at("a");
    destinations.answer(stream("a"), None, &Outcome::Failed(ten_minutes));
    let held = destinations.held(stream("a")).expect("it throttles");
    assert!(held.wait < Duration::from_secs(80), "{held:?}");
}

/// Else claims would bring nothing but them until all are put off again.
#[tokio::test(start_paused = true)]
async fn messages_that_wait_are_not_due_all_at_once() {
    let destinations = destinations();
    fail(&destinations, "a", 5);
    let held = |_| destinations.held(stream("a")).expect("it is unavailable").wait;
    let waits: Vec<Duration> = (0..100_000).map(held).collect();
    assert!(waits[0] < Duration::from_secs(39), "{:?}", waits[0]);
    let within = |from: u64, to: u64| {
        let range = Duration::from_secs(from)..Duration::from_secs(to);
        waits.iter().filter(|wait| range.contains(wait)).count()
    };
    for from in (30..150).step_by(10) {
        assert!(within(from, from + 10) <= 12_000, "{from}: {}", within(from, from + 10));
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_stays_unavailable_is_tried_less_and_less_often() {
    let destinations = destinations();
    fail(&destinations, "a", 5);
    for wait in [30, 60, 120, 240, 300, 300] {
        advance(Duration::from_secs(wait - 1)).await;
        assert!(destinations.pass(stream("a"), false).is_err(), "{wait}");
        advance(Duration::from_secs(2)).await;
        fail(&destinations, "a", 1);
    }
}

/// As of a publisher that knows without asking: a topic that is not there.
#[tokio::test(start_paused = true)]
async fn failures_without_a_trial_keep_a_destination_unavailable_and_use_no_attempts() {
    let destinations = destinations();
    fail(&destinations, "a", 5);
    for wait in [31, 61, 121, 241] {
        advance(Duration::from_secs(wait)).await;
        assert!(destinations.held(stream("a")).is_none(), "it may be tried");
        for _ in 0..3 {
            let finding = destinations.answer(stream("a"), None, &unavailable("a"));
            assert!(finding.least_wait.is_some(), "no attempt is used");
            assert!(destinations.held(stream("a")).is_some());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn however_many_destinations_fail_the_broker_is_not_to_blame() {
    let destinations = destinations();
    for n in 0..20 {
        let finding = fail(&destinations, &n.to_string(), 5);
        assert_eq!(finding.answer, Answer::Nothing, "destination {n}");
    }
    assert!(destinations.pass(stream("there"), false).unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn messages_of_one_topic_that_go_to_several_destinations_wait_for_their_own_alone() {
    let destinations = destinations();
    let of = |tenant: Option<&str>, event_type: Option<&str>| {
        let mut message = Message::new("orders", "");
        message.tenant = tenant.map(Into::into);
        message.event_type = event_type.map(Into::into);
        stream_of(&message)
    };
    let failing = of(Some("acme"), Some("paid"));
    for _ in 0..5 {
        let pass = destinations.pass(failing, false).expect("it may be tried");
        destinations.answer(failing, pass, &unavailable("orders.acme"));
    }
    assert!(destinations.held(failing).is_some());
    for (tenant, event_type) in [
        (Some("globex"), Some("paid")),
        (Some("acme"), None),
        (None, Some("paid")),
    ] {
        let other = of(tenant, event_type);
        assert!(destinations.held(other).is_none(), "{tenant:?} {event_type:?}");
        assert!(destinations.pass(other, false).unwrap().is_none());
    }
    // Two streams to one destination share what is known of it.
    let sibling = of(Some("acme"), Some("shipped"));
    destinations.answer(sibling, None, &unavailable("orders.acme"));
    assert!(destinations.held(sibling).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_many_answers_ask_for_is_said_once() {
    let destinations = destinations();
    let circuit = crate::guard::circuit::Circuit::new(BreakerConfig::default(), "default");
    let wait = Duration::from_secs(30);
    let ask = || {
        let busy = Outcome::Failed(PublishError::throttled(wait, "quota").at("a"));
        let (counted, log) = observe(|| {
            destinations.answer(stream("a"), None, &busy);
            circuit.pause(wait, "quota");
        });
        let said = log.matches("throttles").count();
        (said, counted.get("outbox_throttled_count").copied())
    };
    assert_eq!(ask(), (2, Some(1)));
    for _ in 0..15 {
        advance(Duration::from_millis(1)).await;
        assert_eq!(ask(), (0, None));
    }
    advance(wait).await;
    assert_eq!(ask(), (2, Some(1)), "another pause");
}

#[tokio::test(start_paused = true)]
async fn those_that_are_unavailable_are_named_with_the_reason() {
    let destinations = destinations();
    assert!(destinations.unavailable().is_empty());
    fail(&destinations, "a", 5);
    fail(&destinations, "b", 1);
    let busy = Outcome::Failed(PublishError::throttled(Duration::from_secs(9), "quota").at("c"));
    destinations.answer(stream("c"), None, &busy);
    let named: Vec<_> = destinations.unavailable().into_iter().collect();
    let expected = [("a", "connection refused"), ("c", "quota")];
    assert_eq!(
        named,
        expected.map(|(place, reason)| (place.to_owned(), reason.to_owned()))
    );
    advance(Duration::from_secs(31)).await;
    let named: Vec<_> = destinations.unavailable().into_keys().collect();
    assert_eq!(named, ["a"], "nothing got through to it");
    for _ in 0..3 {
        let pass = destinations.pass(stream("a"), false).expect("it may be tried");
        destinations.answer(stream("a"), pass, &Outcome::DELIVERED);
    }
    assert!(destinations.unavailable().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_throttles_is_waited_for_within_reason() {
    let destinations = destinations();
    let busy = |after| Outcome::Failed(PublishError::throttled(after, "quota").at("a"));
    destinations.answer(stream("a"), None, &busy(Duration::from_secs(10)));
    assert!(destinations.held(stream("a")).is_some() && destinations.held(stream("b")).is_none());
    advance(Duration::from_secs(11)).await;
    assert!(destinations.held(stream("a")).is_none());
    destinations.answer(stream("a"), None, &busy(Duration::MAX));
    advance(Duration::from_mins(61)).await;
    assert!(destinations.held(stream("a")).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_destination_in_doubt_has_half_of_the_window() {
    let destinations = destinations();
    fail(&destinations, "a", 1);
    let passes: Vec<_> = (0..50)
        .map(|_| destinations.pass(stream("a"), false).unwrap())
        .collect();
    assert!(destinations.pass(stream("a"), false).is_err());
    for pass in passes {
        destinations.answer(stream("a"), pass, &Outcome::DELIVERED);
    }
    let passes: Vec<_> = (0..100)
        .map(|_| destinations.pass(stream("a"), false).unwrap())
        .collect();
    assert_eq!(passes.len(), 100, "it is there");
}

#[tokio::test(start_paused = true)]
async fn destinations_that_are_well_are_forgotten() {
    let destinations = destinations();
    for n in 0..MAX_DESTINATIONS * 3 {
        let topic = n.to_string();
        fail(&destinations, &topic, 1);
        advance(Duration::from_secs(1)).await;
    }
    let state = destinations.state();
    assert!(state.places.len() <= MAX_DESTINATIONS && state.streams.len() <= MAX_DESTINATIONS);
}

#[tokio::test(start_paused = true)]
async fn the_circuit_of_each_destination_is_a_figure_of_its_own() {
    let series = |place: &str| format!("outbox_destination_circuit_state{{namespace=default,destination={place}}}");
    let (counted, _) = observe_series(|| drop(destinations().with_all(vec!["archive".into()])));
    assert_eq!(counted[&series("archive")], 0, "known from the start");
    let destinations = destinations();
    let (counted, _) = observe_series(|| {
        fail(&destinations, "a", 5);
        fail(&destinations, "b", 1);
    });
    assert_eq!((counted[&series("a")], counted[&series("b")]), (2, 0));
    assert_eq!(counted["outbox_destinations_unavailable{namespace=default}"], 1);
    advance(Duration::from_secs(31)).await;
    let mut passes = Vec::new();
    let (counted, _) = observe_series(|| passes.extend((0..3).map(|_| destinations.pass(stream("a"), false).unwrap())));
    assert_eq!(counted[&series("a")], 1, "it is tried");
    let (counted, _) = observe_series(|| {
        for pass in passes {
            destinations.answer(stream("a"), pass, &Outcome::DELIVERED);
        }
    });
    assert_eq!(counted[&series("a")], 0);
    assert_eq!(counted["outbox_destinations_unavailable{namespace=default}"], 0);
    let (counted, _) = observe_series(|| drop(destinations.answer(stream("a"), None, &Outcome::DELIVERED)));
    assert!(counted.is_empty(), "only changes are told: {counted:?}");
}

#[tokio::test(start_paused = true)]
async fn however_many_destinations_there_are_the_number_of_figures_is_bounded() {
    let destinations = destinations();
    let (counted, _) = observe_series(|| {
        for n in 0..300 {
            fail(&destinations, &format!("tenant-{n}"), 5);
        }
    });
    let states = counted.keys().filter(|series| series.contains("_circuit_state"));
    assert_eq!(states.count(), 101);
    let other = "outbox_destination_circuit_state{namespace=default,destination=other}";
    assert_eq!(counted[other], 2, "the worst of them");
    assert_eq!(counted["outbox_destinations_unavailable{namespace=default}"], 300);
}
