//! The receiver of notifications, which has its moods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing};
use rand::RngExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::guests::REFUSED;

/// How the receiver answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Mostly well; now and then it fails, never twice for the same donation, or throttles.
    Stumbling,
    /// Not at all.
    Hanging,
}

#[derive(Debug)]
struct ReceiverState {
    mood: Mood,
    /// How often each request was told of.
    told: BTreeMap<String, usize>,
    failed: BTreeSet<String>,
}

type Shared = Arc<Mutex<ReceiverState>>;

pub struct Receiver {
    state: Shared,
    address: SocketAddr,
}

impl Receiver {
    pub async fn start() -> anyhow::Result<Self> {
        let state = Arc::new(Mutex::new(ReceiverState {
            mood: Mood::Stumbling,
            told: BTreeMap::new(),
            failed: BTreeSet::new(),
        }));
        let app = Router::new()
            .route("/{*path}", routing::post(answer))
            .with_state(Arc::clone(&state));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        // It ends with the process.
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { state, address })
    }

    pub fn url(&self) -> String {
        format!("http://{}/api/webhooks/1/secret", self.address)
    }

    pub fn set(&self, mood: Mood) {
        lock(&self.state).mood = mood;
    }

    /// How often each request was told of.
    pub fn told(&self) -> BTreeMap<String, usize> {
        lock(&self.state).told.clone()
    }
}

fn lock(state: &Shared) -> MutexGuard<'_, ReceiverState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(State(state): State<Shared>, Json(notification): Json<Value>) -> Response {
    if lock(&state).mood == Mood::Hanging {
        return std::future::pending().await;
    }
    let card = &notification["embeds"][0];
    if card["title"]
        .as_str()
        .is_some_and(|title| title.contains(&format!("gave {REFUSED} points")))
    {
        let refusal = json!({"message": "this number is unlucky", "code": 50_035});
        return (StatusCode::BAD_REQUEST, Json(refusal)).into_response();
    }
    let id = card["footer"]["text"].as_str().unwrap_or_default().to_owned();
    match rand::rng().random_range(0..100) {
        0..5 if lock(&state).failed.insert(id.clone()) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        5..10 => (StatusCode::TOO_MANY_REQUESTS, Json(json!({"retry_after": 0.1}))).into_response(),
        _ => {
            *lock(&state).told.entry(id).or_default() += 1;
            StatusCode::NO_CONTENT.into_response()
        }
    }
}
