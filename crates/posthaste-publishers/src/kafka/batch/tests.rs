use super::*;

type Outcomes = Arc<Mutex<Vec<(Place, Outcome)>>>;

const ROAD: Option<Via> = Some(Via { generation: 1, name: 7 });

/// A batch with lanes of these lengths, and what is reported of it.
fn batch(lengths: &[u32]) -> (Arc<Ongoing>, Outcomes) {
    let outcomes = Outcomes::default();
    let sink = Arc::clone(&outcomes);
    let report = Report::new(move |place, outcome| sink.lock().unwrap().push((place, outcome)));
    (Ongoing::of_lanes(lengths, report), outcomes)
}

fn hand_over(ongoing: &Ongoing, position: u32, role: Role) {
    assert!(ongoing.hand_over(
        position,
        role,
        ROAD.filter(|_| role == Role::Lanes),
        0,
        None,
        Instant::now()
    ));
}

/// What is reported when the positions of one lane end like this, in this order.
fn reported(gave_up: bool, ends: &[(u32, End)]) -> Vec<Outcome> {
    let length = u32::try_from(ends.len()).unwrap();
    let (ongoing, outcomes) = batch(&[length]);
    if gave_up {
        (0..length).for_each(|position| hand_over(&ongoing, position, Role::Lanes));
        ongoing.give_up(Role::Lanes, Instant::now(), |_| silence());
    }
    for (position, end) in ends {
        ongoing.end(*position, end.clone());
        ongoing.end(*position, End::Delivered);
    }
    ongoing.report_all();
    let outcomes = outcomes.lock().unwrap();
    let places: Vec<Place> = outcomes.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, (0..length).map(Place).collect::<Vec<_>>(), "in order, and once");
    outcomes.iter().map(|(_, outcome)| outcome.clone()).collect()
}

fn of(outcomes: &Outcomes) -> Vec<(u32, Outcome)> {
    let outcomes = outcomes.lock().unwrap();
    outcomes
        .iter()
        .map(|(place, outcome)| (place.0, outcome.clone()))
        .collect()
}

fn silence() -> PublishError {
    PublishError::transport("silence")
}

fn refused() -> PublishError {
    PublishError::transient("refused")
}

#[test]
fn answers_are_passed_on_in_the_order_of_the_lane() {
    let ends = [(2, End::Delivered), (0, End::Delivered), (1, End::Delivered)];
    assert_eq!(reported(false, &ends), vec![Outcome::DELIVERED; 3]);
}

#[test]
fn the_first_that_failed_takes_the_blame() {
    let ends = [
        (3, End::Withdrawn),
        (0, End::Delivered),
        (2, End::failed(refused())),
        (1, End::failed(refused())),
    ];
    let expected = [
        Outcome::DELIVERED,
        Outcome::Failed(refused()),
        Outcome::NotAttempted,
        Outcome::NotAttempted,
    ];
    assert_eq!(reported(false, &ends), expected);
}

#[test]
fn what_was_taken_back_failed_only_if_we_gave_up() {
    let ends = [(0, End::Withdrawn), (1, End::Withdrawn)];
    assert_eq!(reported(false, &ends), vec![Outcome::NotAttempted; 2]);
    assert_eq!(
        reported(true, &ends),
        [Outcome::Failed(silence()), Outcome::NotAttempted]
    );
    assert_eq!(reported(true, &[(0, End::NotHandedOver)]), [Outcome::NotAttempted]);
}

#[test]
fn what_may_have_been_sent_is_never_not_attempted() {
    let ends = [(0, End::Uncertain), (1, End::Uncertain), (2, End::Withdrawn)];
    for gave_up in [false, true] {
        let outcomes = reported(gave_up, &ends);
        assert!(matches!(outcomes[0], Outcome::Failed(_)), "{outcomes:?}");
        assert!(matches!(outcomes[1], Outcome::Failed(_)), "{outcomes:?}");
        assert_eq!(outcomes[2], Outcome::NotAttempted);
    }
}

#[test]
fn what_does_not_go_out_stops_its_lane_before_those_ahead_of_it_are_answered() {
    for end in [
        End::failed(refused()),
        End::NotHandedOver,
        End::RefusedWithOthers,
        End::Withdrawn,
        End::Uncertain,
    ] {
        let (ongoing, outcomes) = batch(&[3]);
        ongoing.end(1, end.clone());
        assert_eq!(ongoing.turn(0, ROAD), Turn::Never, "{end:?}");
        assert!(!ongoing.hand_over(0, Role::Lone, None, 0, None, Instant::now()));
        ongoing.report_all();
        assert!(of(&outcomes).is_empty(), "told in order");
    }
}

#[test]
fn a_producer_is_awaited_until_what_it_was_given_is_answered() {
    let (ongoing, _) = batch(&[3]);
    assert!(!ongoing.awaits(Role::Lanes));
    hand_over(&ongoing, 0, Role::Lanes);
    assert!(ongoing.awaits(Role::Lanes) && !ongoing.awaits(Role::Lone));
    assert!(ongoing.silent_since(Role::Lanes).is_some() && ongoing.silent_since(Role::Lone).is_none());
    ongoing.end(0, End::Delivered);
    assert!(!ongoing.awaits(Role::Lanes) && ongoing.turn(0, None) == Turn::Now);
    hand_over(&ongoing, 1, Role::Lone);
    ongoing.end(1, End::Withdrawn);
    assert!(!ongoing.awaits(Role::Lone) && ongoing.turn(0, None) == Turn::Never);
}

#[test]
fn what_a_full_queue_did_not_take_is_not_awaited() {
    let (ongoing, _) = batch(&[2]);
    hand_over(&ongoing, 0, Role::Lanes);
    ongoing.not_taken(0);
    assert!(!ongoing.awaits(Role::Lanes));
    assert!(ongoing.close(), "librdkafka has nothing of it");
    assert!(!ongoing.close(), "told once");
}

#[test]
fn only_lanes_that_are_silent_are_given_up() {
    let (ongoing, outcomes) = batch(&[1, 1]);
    hand_over(&ongoing, 0, Role::Lanes);
    let since = Instant::now();
    std::thread::sleep(std::time::Duration::from_millis(2));
    hand_over(&ongoing, 1, Role::Lanes);
    ongoing.give_up(Role::Lanes, since, |_| silence());
    ongoing.end(0, End::Withdrawn);
    ongoing.end(1, End::Withdrawn);
    let expected = [(0, Outcome::Failed(silence())), (1, Outcome::NotAttempted)];
    assert_eq!(of(&outcomes), expected);
}

#[test]
fn what_no_producer_was_given_is_kept_back() {
    let (ongoing, outcomes) = batch(&[3]);
    hand_over(&ongoing, 0, Role::Lanes);
    assert!(!ongoing.close(), "librdkafka has one");
    assert!(of(&outcomes).is_empty());
    assert!(ongoing.answered(0, End::Delivered));
    let kept = |place| (place, Outcome::NotAttempted);
    assert_eq!(of(&outcomes), [(0, Outcome::DELIVERED), kept(1), kept(2)]);
}

/// Two batches with two messages each of one lane, the first of which was handed over.
fn in_line() -> [(Arc<Ongoing>, Outcomes); 2] {
    let (first, second) = (batch(&[2]), batch(&[2]));
    for position in [0, 1] {
        hand_over(&first.0, position, Role::Lanes);
    }
    assert!(Ongoing::follow((&first.0, 0), (&second.0, 0)));
    [first, second]
}

#[test]
fn a_lane_goes_on_in_the_next_batch_when_all_of_it_took_the_same_road() {
    let [(first, _), (second, _)] = in_line();
    assert_eq!(second.turn(0, ROAD), Turn::Later, "the producer may not have it yet");
    first.sent(0);
    assert_eq!(second.turn(0, ROAD), Turn::Now);
    assert_eq!(second.turn(0, None), Turn::Later, "alone");
    let other = ROAD.map(|road| Via { generation: 2, ..road });
    assert_eq!(second.turn(0, other), Turn::Later, "by another producer");
    let (third, _) = batch(&[1]);
    Ongoing::follow((&second, 0), (&third, 0));
    assert_eq!(third.turn(0, ROAD), Turn::Later);
    for position in [0, 1] {
        hand_over(&second, position, Role::Lanes);
    }
    second.sent(0);
    assert_eq!(third.turn(0, ROAD), Turn::Now);
    for position in [0, 1] {
        first.end(position, End::Delivered);
    }
    for position in [0, 1] {
        second.end(position, End::Delivered);
    }
    assert_eq!(third.turn(0, other), Turn::Now, "everything ahead is answered");
}

#[test]
fn a_message_that_is_alone_is_answered_before_the_next_batch_goes_on() {
    let ((first, _), (second, _)) = (batch(&[1]), batch(&[1]));
    hand_over(&first, 0, Role::Lone);
    first.sent(0);
    Ongoing::follow((&first, 0), (&second, 0));
    assert_eq!(second.turn(0, ROAD), Turn::Later);
    first.end(0, End::Delivered);
    assert_eq!(second.turn(0, ROAD), Turn::Now);
}

/// Proves pitfall 5.
#[test]
fn a_failure_stops_the_lane_in_all_batches_and_takes_the_blame() {
    let [(first, told), (second, told_later)] = in_line();
    let (third, told_last) = batch(&[1]);
    first.sent(0);
    for position in [0, 1] {
        hand_over(&second, position, Role::Lanes);
    }
    Ongoing::follow((&second, 0), (&third, 0));
    second.end(0, End::failed(refused()));
    first.end(1, End::failed(refused()));
    assert_eq!(second.turn(0, ROAD), Turn::Never);
    assert_eq!(third.turn(0, ROAD), Turn::Never);
    let (fourth, _) = batch(&[1]);
    Ongoing::follow((&third, 0), (&fourth, 0));
    assert_eq!(fourth.turn(0, ROAD), Turn::Never, "which came when it was known");
    assert!(of(&told_later).is_empty(), "the first batch owes an answer");
    first.end(0, End::Delivered);
    second.end(1, End::Withdrawn);
    third.end(0, End::NotHandedOver);
    assert_eq!(of(&told), [(0, Outcome::DELIVERED), (1, Outcome::Failed(refused()))]);
    assert_eq!(
        of(&told_later),
        [(0, Outcome::NotAttempted), (1, Outcome::NotAttempted)]
    );
    assert_eq!(of(&told_last), [(0, Outcome::NotAttempted)]);
}

#[test]
fn a_failure_is_told_before_a_later_batch_may_go_on() {
    let ((first, told), (second, _)) = (batch(&[1]), batch(&[1]));
    hand_over(&first, 0, Role::Lone);
    first.end(0, End::failed(refused()));
    assert!(!Ongoing::follow((&first, 0), (&second, 0)), "it is answered");
    assert_eq!(of(&told), [(0, Outcome::Failed(refused()))]);
    assert_eq!(
        second.turn(0, None),
        Turn::Now,
        "whether it may go is for the relay to say"
    );
}
