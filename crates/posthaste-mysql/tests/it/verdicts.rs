//! Verdicts that the database refuses: found before anything is published, and given up alone if they come later.

use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{ClaimRequest, ExtendRequest, KeyOrdering, Scope, StoreErrorKind, WorkerId};
use posthaste_core::{MessageId, RelayStore};
use posthaste_mysql::MySqlStore;
use posthaste_sql::TableMap;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};

use crate::support;

const DDL: &str = "create table box (
    id bigint not null auto_increment primary key,
    payload varchar(100) not null,
    status varchar(20) not null default 'NEW',
    attempts int not null default 0,
    last_error text,
    sent_at datetime(6)
);
create table graves (id bigint not null primary key, payload varchar(100), reason text)";

/// A table without leases, and with a dead-letter table.
const MAP: &str = r#"
name = "box"
order = ["id"]
topic = { fixed = "t" }
[tables]
outbox = "box"
dead_letter = "graves"
[columns]
id = { column = "id", kind = "integer", generated = true }
payload = { column = "payload", kind = "text" }
status = "status"
attempts = "attempts"
last_error = { column = "last_error", kind = "text" }
delivered_at = { column = "sent_at", kind = "timestamp" }
[dead_letter.columns]
id = "id"
payload = { column = "payload", kind = "text" }
last_error = { column = "reason", kind = "text" }
[states]
pending = "NEW"
delivered = "SENT"
dead = "DEAD"
"#;

async fn store() -> MySqlStore {
    let pool = support::pool(4).await;
    support::run(&pool, DDL).await;
    MySqlStore::with_map(pool, TableMap::from_toml(MAP).unwrap()).unwrap()
}

async fn insert(store: &MySqlStore, rows: u32) {
    for _ in 0..rows {
        support::run(store.pool(), "insert into box (payload) values ('x')").await;
    }
}

/// Rows in each state, and how many attempts all of them count.
async fn states(store: &MySqlStore) -> Vec<(String, i64, i64)> {
    sqlx::query_as("select status, count(*), cast(sum(attempts) as signed) from box group by status order by status")
        .fetch_all(store.pool())
        .await
        .unwrap()
}

fn request() -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 100,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: Duration::from_mins(1),
        max_attempts: 3,
        ordering: KeyOrdering::None,
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

/// Claims all rows; the verdict on each is `decide`'s.
async fn settle(
    store: &MySqlStore,
    decide: impl Fn(MessageId, LeaseToken) -> Settlement,
) -> posthaste_core::store::Settled {
    let request = request();
    let claim = store.claim(&request).await.unwrap();
    let verdicts: Vec<_> = claim
        .messages
        .iter()
        .map(|claimed| decide(claimed.message.id, request.token))
        .collect();
    store.settle(&verdicts).await.unwrap()
}

const TRIGGER: &str = "create trigger no_thirteen before update on box for each row
    begin
        if new.id = 13 then
            signal sqlstate '45000' set message_text = 'not thirteen';
        end if;
    end";

#[tokio::test]
async fn a_refused_verdict_is_given_up_alone_and_its_neighbours_are_settled() {
    let store = store().await;
    insert(&store, 20).await;
    support::run(store.pool(), TRIGGER).await;
    let settled = settle(&store, Settlement::delivered).await;
    assert_eq!(settled.lost, []);
    let refused: Vec<_> = settled.refused.iter().map(|refused| refused.id).collect();
    assert_eq!(refused, [MessageId::Number(13)]);
    assert!(settled.refused[0].error.to_string().contains("not thirteen"));
    assert_eq!(
        states(&store).await,
        [("NEW".into(), 1, 0), ("SENT".into(), 19, 19)],
        "each of the others once"
    );
    support::run(store.pool(), "drop trigger no_thirteen").await;
    let settled = settle(&store, Settlement::delivered).await;
    assert!(settled.lost.is_empty() && settled.refused.is_empty(), "{settled:?}");
    assert_eq!(states(&store).await, [("SENT".into(), 20, 20)], "it was free again");
    support::drop_database(store.pool()).await;
}

#[tokio::test]
async fn a_dead_letter_table_that_refuses_leaves_the_row_and_its_neighbours() {
    let store = store().await;
    insert(&store, 8).await;
    support::run(store.pool(), "alter table graves add constraint check (id <> 5)").await;
    let settled = settle(&store, |id, token| match id {
        MessageId::Number(5 | 6) => Settlement::dead(id, token, "refused"),
        id => Settlement::delivered(id, token),
    })
    .await;
    let refused: Vec<_> = settled.refused.iter().map(|refused| refused.id).collect();
    assert_eq!(refused, [MessageId::Number(5)]);
    assert_eq!(
        states(&store).await,
        [("DEAD".into(), 1, 1), ("NEW".into(), 1, 0), ("SENT".into(), 6, 6)]
    );
    let graves: Vec<i64> = sqlx::query_scalar("select id from graves")
        .fetch_all(store.pool())
        .await
        .unwrap();
    assert_eq!(graves, [6]);
    support::drop_database(store.pool()).await;
}

/// A deadlock undoes the whole transaction, marks included: nothing is settled, and nothing is said to be.
#[tokio::test]
async fn a_deadlock_is_no_refusal() {
    let store = store().await;
    insert(&store, 4).await;
    support::run(
        store.pool(),
        "create trigger always before update on box for each row signal sqlstate '40001' set mysql_errno = 1213",
    )
    .await;
    let request = request();
    let claim = store.claim(&request).await.unwrap();
    let verdicts: Vec<_> = claim
        .messages
        .iter()
        .map(|claimed| Settlement::delivered(claimed.message.id, request.token))
        .collect();
    let error = store.settle(&verdicts).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Contention);
    support::run(store.pool(), "drop trigger always").await;
    assert_eq!(states(&store).await, [("NEW".into(), 4, 0)]);
    support::drop_database(store.pool()).await;
}

/// What the check says, and that it leaves nothing behind.
async fn check(store: &MySqlStore) -> Result<(), String> {
    let before = states(store).await;
    let checked = store.check().await.map_err(|error| error.to_string());
    assert_eq!(states(store).await, before, "a trial leaves nothing behind");
    let graves: i64 = sqlx::query_scalar("select count(*) from graves")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(graves, 0);
    checked
}

#[tokio::test]
async fn a_check_tries_every_verdict_and_leaves_nothing_behind() {
    for (spoil, said) in [
        (
            "alter table box add constraint check (status in ('NEW', 'DEAD'))",
            "`delivered`",
        ),
        (
            "alter table box add constraint check (status in ('NEW', 'SENT'))",
            "`dead`",
        ),
        ("alter table box modify last_error varchar(20)", "`retry`"),
        ("alter table box add constraint check (attempts = 0)", "`delivered`"),
        ("alter table graves add constraint check (id < 0)", "`dead`"),
        ("alter table graves modify reason varchar(20)", "`dead`"),
        (
            "create trigger t before update on box for each row signal sqlstate '45000' set message_text = 'frozen'",
            "frozen",
        ),
        (
            "create trigger t before insert on graves for each row signal sqlstate '45000' set message_text = 'full'",
            "full",
        ),
    ] {
        let store = store().await;
        assert_eq!(check(&store).await, Ok(()), "an empty table");
        insert(&store, 2).await;
        assert_eq!(check(&store).await, Ok(()));
        support::run(store.pool(), spoil).await;
        let error = check(&store).await.expect_err(spoil);
        assert!(error.contains(said), "{spoil}: {error}");
        support::drop_database(store.pool()).await;
    }
}

/// Every right is asked for, whether there is a row or not.
#[tokio::test]
async fn a_check_finds_rights_that_are_missing() {
    let owner = store().await;
    let database: String = sqlx::query_scalar("select database()")
        .fetch_one(owner.pool())
        .await
        .unwrap();
    let user = format!("u{}", &database[2..22]);
    for (grants, allowed) in [
        ("select, update (status, sent_at)", false),
        ("select, update (status, sent_at, attempts, last_error)", true),
    ] {
        for rows in [0, 1] {
            support::run(
                owner.pool(),
                format!(
                    "create user {user} identified by 'secret'; grant {grants} on box to {user};
                     grant insert, select on graves to {user};
                     delete from box;"
                ),
            )
            .await;
            insert(&owner, rows).await;
            let options: MySqlConnectOptions = support::server_url().parse().unwrap();
            let options = options.username(&user).password("secret").database(&database);
            let pool = MySqlPoolOptions::new().connect_with(options).await.unwrap();
            let relay = MySqlStore::with_map(pool, TableMap::from_toml(MAP).unwrap()).unwrap();
            let checked = relay.check().await;
            assert_eq!(checked.is_ok(), allowed, "{grants}, {rows} rows: {checked:?}");
            if let Err(error) = checked {
                assert_eq!(error.kind, StoreErrorKind::Access, "{error}");
            }
            relay.pool().close().await;
            support::run(owner.pool(), format!("drop user {user}")).await;
        }
    }
    support::drop_database(owner.pool()).await;
}

/// Under leases too, where a verdict is refused as a whole and the engine halves.
#[tokio::test]
async fn the_native_table_is_tried_as_well() {
    let store = support::store(2).await;
    store.check().await.unwrap();
    let outbox = store.outbox(posthaste_core::OutboxOptions::default());
    let mut conn = store.pool().acquire().await.unwrap();
    let message = posthaste_core::Message::new("t", "x");
    outbox.enqueue(&mut conn, message).await.unwrap();
    drop(conn);
    store.check().await.unwrap();
    support::run(
        store.pool(),
        "create trigger t before update on posthaste_outbox for each row
         if new.status = 'dead' then signal sqlstate '45000' set message_text = 'nobody dies'; end if",
    )
    .await;
    let error = store.check().await.unwrap_err();
    assert!(error.to_string().contains("nobody dies"), "{error}");
    assert_eq!(store.stats("default").await.unwrap().pending, 1);
    support::drop_database(store.pool()).await;
}

/// A relay that starts does not wait for a row that another one has.
#[tokio::test]
async fn a_check_does_not_wait_for_rows_in_flight() {
    let store = store().await;
    insert(&store, 1).await;
    let request = request();
    assert_eq!(store.claim(&request).await.unwrap().messages.len(), 1);
    let checked = tokio::time::timeout(Duration::from_secs(30), store.check());
    checked.await.expect("nobody waits").unwrap();
    let extended = store.extend(ExtendRequest::new(
        request.token,
        &[MessageId::Number(1)],
        request.lease,
    ));
    assert_eq!(extended.await.unwrap().held, [MessageId::Number(1)]);
    let released = Settlement::released(MessageId::Number(1), request.token);
    store.settle(&[released]).await.unwrap();
    support::drop_database(store.pool()).await;
}

/// A row that may not die, though its attempts are used up, holds up nobody else.
#[tokio::test]
async fn a_refused_death_stops_no_claim() {
    let store = support::store(2).await;
    let outbox = store.outbox(posthaste_core::OutboxOptions::default());
    let mut conn = store.pool().acquire().await.unwrap();
    for payload in ["1", "2"] {
        let message = posthaste_core::Message::new("t", payload);
        outbox.enqueue(&mut conn, message).await.unwrap();
    }
    drop(conn);
    for sql in [
        "update posthaste_outbox set status = 'processing', attempts = 3, lease_token = uuid(),
         locked_until = utc_timestamp(6) - interval 1 second where payload = '1'",
        "create trigger t before update on posthaste_outbox for each row
         if new.status = 'dead' then signal sqlstate '45000' set message_text = 'nobody dies'; end if",
    ] {
        support::run(store.pool(), sql).await;
    }
    let claim = store.claim(&request()).await.unwrap();
    assert_eq!((claim.messages.len(), claim.died.len()), (1, 0));
    assert_eq!(claim.messages[0].message.payload, "2");
    support::run(store.pool(), "drop trigger t").await;
    assert_eq!(store.claim(&request()).await.unwrap().died.len(), 1);
    support::drop_database(store.pool()).await;
}
