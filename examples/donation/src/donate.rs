//! The write path: points, history and outbox in one transaction.

use posthaste::core::integrity::ContentHash;
use serde_json::json;
use sqlx::error::ErrorKind;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{MySqlConnection, MySqlPool};
use thiserror::Error;

/// A guest gives points to an admin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Donation {
    /// Chosen by the client, the same each time it asks for the same donation.
    pub request_id: String,
    /// Who gives, by uuid.
    pub guest: String,
    /// Who receives, by fingerprint.
    pub admin: String,
    /// How many points.
    pub amount: i64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// The points were moved.
    Now,
    /// They were moved by an earlier request of the same id.
    Before,
}

/// Why no points were moved.
#[derive(Debug, Error)]
pub enum NotGiven {
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(&'static str),
    /// Nobody has this uuid.
    #[error("there is no guest {0}")]
    UnknownGuest(String),
    /// Nobody has this fingerprint.
    #[error("there is no admin with the fingerprint {0}")]
    UnknownAdmin(String),
    /// The guest has fewer points.
    #[error("the guest has {has} points and wants to give {amount}")]
    NotEnough {
        /// What the guest has.
        has: i64,
        /// What the guest wants to give.
        amount: i64,
    },
    /// Another donation has this request's id.
    #[error("request {0} was a different donation; choose a new request id")]
    RequestReused(String),
    /// The database.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// The type of the event that a donation causes.
pub const EVENT_TYPE: &str = "DONATION_COMPLETED";

/// The server found a deadlock and undid this transaction to end it.
const DEADLOCK: u16 = 1213;

/// How often a transaction that was undone is made again.
const TRIES: usize = 5;

/// Gives points, once per request id however often it is asked for, also at the same time.
pub async fn donate(pool: &MySqlPool, donation: &Donation) -> Result<Given, NotGiven> {
    let mut tries = 0;
    loop {
        tries += 1;
        match try_donate(pool, donation).await {
            Err(NotGiven::Database(error)) if number(&error) == Some(DEADLOCK) && tries < TRIES => {}
            // Another guest's request of the same id was quicker. The next look finds it.
            Err(NotGiven::Database(error)) if is_duplicate(&error) && tries < TRIES => {}
            done => return done,
        }
    }
}

async fn try_donate(pool: &MySqlPool, donation: &Donation) -> Result<Given, NotGiven> {
    let Donation {
        request_id,
        guest,
        admin,
        amount,
    } = donation;
    if request_id.is_empty() || request_id.len() > 50 {
        return Err(NotGiven::Invalid("a request id has 1 to 50 characters"));
    }
    if *amount <= 0 {
        return Err(NotGiven::Invalid("give at least 1 point"));
    }
    // Under REPEATABLE READ the look at the history could be one into the past.
    let mut tx = pool
        .begin_with("set transaction isolation level read committed; start transaction")
        .await?;

    // Locks the guest: whatever else this guest does waits here until we are done.
    let has: Option<i64> = sqlx::query_scalar("select point from member where uuid = ? for update")
        .bind(guest)
        .fetch_optional(&mut *tx)
        .await?;
    let has = has.ok_or_else(|| NotGiven::UnknownGuest(guest.clone()))?;
    let receiver: Option<String> = sqlx::query_scalar("select uuid from member where fingerprint = ?")
        .bind(admin)
        .fetch_optional(&mut *tx)
        .await?;
    let receiver = receiver.ok_or_else(|| NotGiven::UnknownAdmin(admin.clone()))?;

    let before: Option<(String, String, i64)> =
        sqlx::query_as("select guest_uuid, admin_uuid, amount from donation_history where request_id = ?")
            .bind(request_id)
            .fetch_optional(&mut *tx)
            .await?;
    if let Some(before) = before {
        let same = before == (guest.clone(), receiver, *amount);
        return if same {
            Ok(Given::Before)
        } else {
            Err(NotGiven::RequestReused(request_id.clone()))
        };
    }
    if has < *amount {
        return Err(NotGiven::NotEnough { has, amount: *amount });
    }
    move_points(&mut tx, guest, &receiver, *amount).await?;
    sqlx::query(
        "insert into donation_history (request_id, guest_uuid, admin_uuid, amount, created_at)
         values (?, ?, ?, ?, utc_timestamp())",
    )
    .bind(request_id)
    .bind(guest)
    .bind(&receiver)
    .bind(amount)
    .execute(&mut *tx)
    .await?;
    enqueue(&mut tx, donation).await?;
    tx.commit().await?;
    Ok(Given::Now)
}

async fn move_points(tx: &mut MySqlConnection, from: &str, to: &str, amount: i64) -> sqlx::Result<()> {
    sqlx::query("update member set point = point - ? where uuid = ?")
        .bind(amount)
        .bind(from)
        .execute(&mut *tx)
        .await?;
    sqlx::query("update member set point = point + ? where uuid = ?")
        .bind(amount)
        .bind(to)
        .execute(&mut *tx)
        .await?;
    Ok(())
}

/// Writes the event as the service always has: in SQL, with the hash of what it writes. The relay needs no more than that.
async fn enqueue(tx: &mut MySqlConnection, donation: &Donation) -> sqlx::Result<()> {
    let Donation {
        request_id,
        guest,
        admin,
        amount,
    } = donation;
    let payload = json!({"requestId": request_id, "guest": guest, "admin": admin, "amount": amount}).to_string();
    let hash = ContentHash::of(&[request_id.as_bytes(), EVENT_TYPE.as_bytes(), payload.as_bytes()]);
    sqlx::query(
        "insert into donation_outbox
             (request_id, event_type, payload, content_hash, status, next_retry_at, created_at, updated_at)
         values (?, ?, ?, ?, 'PENDING', utc_timestamp(), utc_timestamp(), utc_timestamp())",
    )
    .bind(request_id)
    .bind(EVENT_TYPE)
    .bind(payload)
    .bind(hash.to_string())
    .execute(&mut *tx)
    .await?;
    Ok(())
}

fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}

fn is_duplicate(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.kind() == ErrorKind::UniqueViolation)
}
