//! Donations on a real MariaDB: once per request, one guest at a time, all or nothing.

use donation::donate::{Donation, Given, NotGiven, donate};
use donation::setup;
use posthaste::core::integrity::ContentHash;
use sqlx::{Executor, MySqlPool};
use tokio::task::JoinSet;

use crate::support::{counts, database, from_ann, points};

const BOTH: [&str; 2] = ["donation_history", "donation_outbox"];

/// All at once, each in a transaction of its own.
async fn all_at_once(pool: &MySqlPool, donations: impl IntoIterator<Item = Donation>) -> Vec<Result<Given, NotGiven>> {
    let mut asking = JoinSet::new();
    for donation in donations {
        let pool = pool.clone();
        asking.spawn(async move { donate(&pool, &donation).await });
    }
    asking.join_all().await
}

/// Proves D2.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_repeated_fifty_times_at_once_is_one_donation() {
    let Some(pool) = database().await else { return };
    let answers = all_at_once(&pool, (0..50).map(|_| from_ann("r-1", 30))).await;
    let given = |wanted| {
        answers
            .iter()
            .filter(|answer| matches!(answer, Ok(given) if *given == wanted))
            .count()
    };
    assert_eq!((given(Given::Now), given(Given::Before)), (1, 49), "{answers:?}");
    assert_eq!(counts(&pool, BOTH).await, [1, 1]);
    assert_eq!((points(&pool, "ann").await, points(&pool, "bob").await), (70, 30));
}

/// Proves D2.
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_gives_one_donation_at_a_time_and_never_more_than_there_is() {
    let Some(pool) = database().await else { return };
    let answers = all_at_once(&pool, (0..50).map(|n| from_ann(&format!("r-{n}"), 7))).await;
    let given = answers.iter().filter(|answer| matches!(answer, Ok(Given::Now))).count();
    let refused = answers
        .iter()
        .filter(|answer| matches!(answer, Err(NotGiven::NotEnough { .. })))
        .count();
    assert_eq!((given, refused), (14, 36), "{answers:?}");
    assert_eq!(counts(&pool, BOTH).await, [14, 14]);
    assert_eq!((points(&pool, "ann").await, points(&pool, "bob").await), (2, 98));
}

/// Proves A2 and D2.
#[tokio::test]
async fn what_fails_on_the_way_leaves_nothing() {
    let Some(pool) = database().await else { return };
    // The last thing written: points and history are undone with it.
    pool.execute("alter table donation_outbox add constraint broken check (event_type = 'NEVER')")
        .await
        .unwrap();
    let failed = donate(&pool, &from_ann("r-1", 30)).await;
    assert!(matches!(failed, Err(NotGiven::Database(_))), "{failed:?}");
    assert_eq!(counts(&pool, BOTH).await, [0, 0]);
    assert_eq!((points(&pool, "ann").await, points(&pool, "bob").await), (100, 0));

    pool.execute("alter table donation_outbox drop constraint broken")
        .await
        .unwrap();
    assert_eq!(
        donate(&pool, &from_ann("r-1", 30)).await.unwrap(),
        Given::Now,
        "and it can be asked for again"
    );
}

/// Proves D2.
#[tokio::test]
async fn a_request_id_stands_for_one_donation_only() {
    let Some(pool) = database().await else { return };
    assert_eq!(donate(&pool, &from_ann("r-1", 30)).await.unwrap(), Given::Now);
    let other = donate(&pool, &from_ann("r-1", 40)).await;
    assert!(matches!(other, Err(NotGiven::RequestReused(_))), "{other:?}");

    // Two guests who come with the same id at the same time do not wait for each other's row.
    setup::member(&pool, "cyd", "cyd's browser", 100).await.unwrap();
    let from_cyd = |request_id: &str| Donation {
        guest: "cyd".to_owned(),
        ..from_ann(request_id, 5)
    };
    for n in 0..10 {
        let id = format!("both-{n}");
        let answers = all_at_once(&pool, [from_ann(&id, 5), from_cyd(&id)]).await;
        let given = answers.iter().filter(|answer| matches!(answer, Ok(Given::Now))).count();
        let refused = answers
            .iter()
            .filter(|answer| matches!(answer, Err(NotGiven::RequestReused(_))))
            .count();
        assert_eq!((given, refused), (1, 1), "{answers:?}");
    }
    assert_eq!(counts(&pool, BOTH).await, [11, 11]);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_before_anything_is_written() {
    let Some(pool) = database().await else { return };
    let refused = async |donation: Donation| donate(&pool, &donation).await.unwrap_err().to_string();
    assert_eq!(refused(from_ann("", 1)).await, "a request id has 1 to 50 characters");
    assert_eq!(refused(from_ann("r-1", -5)).await, "give at least 1 point");
    let nobody = Donation {
        guest: "eve".to_owned(),
        ..from_ann("r-1", 1)
    };
    assert_eq!(refused(nobody).await, "there is no guest eve");
    let nowhere = Donation {
        admin: "x".to_owned(),
        ..from_ann("r-1", 1)
    };
    assert_eq!(refused(nowhere).await, "there is no admin with the fingerprint x");
    assert_eq!(counts(&pool, BOTH).await, [0, 0]);
}

/// Proves D3.
#[tokio::test]
async fn the_hash_is_made_over_what_is_stored() {
    let Some(pool) = database().await else { return };
    donate(&pool, &from_ann("r-1", 30)).await.unwrap();
    let (id, kind, payload, hash, status): (String, String, String, String, String) =
        sqlx::query_as("select request_id, event_type, payload, content_hash, status from donation_outbox")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!(
        (id.as_str(), kind.as_str(), status.as_str()),
        ("r-1", "DONATION_COMPLETED", "PENDING")
    );
    let expected = ContentHash::of(&[b"r-1", b"DONATION_COMPLETED", payload.as_bytes()]);
    assert_eq!(hash, expected.to_string());
}
