//! A webhook's receiver on a port of its own, which answers as scripted.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::stream;
use posthaste_publishers::{HttpFormat, HttpOptions, HttpUrl};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// How one notification is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    /// This status, and nothing else.
    Status(u16),
    /// 429, as Discord says it.
    Throttle(f64),
    /// This status, and a `Retry-After` of so many seconds.
    RetryAfter(u16, u64),
    /// Taken, and the last one for so many seconds.
    Last(f64),
    /// Not at all.
    Hang,
    /// Taken after a while.
    Slow(Duration),
    /// Taken, with a text that never comes.
    Unfinished,
}

/// A notification that came in.
#[derive(Clone, Debug)]
pub struct Post {
    pub uri: Uri,
    pub headers: HeaderMap,
    /// As JSON, if it is.
    pub body: Value,
    pub bytes: Bytes,
    pub at: Instant,
    pub taken: bool,
}

impl Post {
    /// The text of a card or of plain lines, without the code block around it.
    pub fn text(&self) -> String {
        let text = self.body["embeds"][0]["description"].as_str().unwrap_or_default();
        text.trim_start_matches("```json\n")
            .trim_end_matches("\n```")
            .to_owned()
    }
}

#[derive(Debug, Default)]
struct Seen {
    script: VecDeque<Reply>,
    otherwise: Option<Reply>,
    /// Bodies with this text are answered with 422.
    refused: Option<&'static str>,
    posts: Vec<Post>,
    in_flight: usize,
    most_in_flight: usize,
}

pub struct Receiver {
    seen: Arc<Mutex<Seen>>,
    address: SocketAddr,
    serving: JoinHandle<()>,
}

pub const SECRET: &str = "hush-hush";

impl Receiver {
    /// Answers as scripted, and then with 204.
    pub async fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let seen = Arc::new(Mutex::new(Seen {
            script: script.into_iter().collect(),
            ..Seen::default()
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serve(listener, seen)
    }

    /// Another one at the same address, which goes on where this one was when its runtime ended.
    pub async fn start_again(&self) -> Self {
        let deadline = Instant::now() + Duration::from_secs(20);
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        Self::serve(listener, Arc::clone(&self.seen))
    }

    fn serve(listener: TcpListener, seen: Arc<Mutex<Seen>>) -> Self {
        let app = Router::new().fallback(answer).with_state(Arc::clone(&seen));
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { seen, address, serving }
    }

    /// The next notification is answered like this.
    pub fn next(&self, reply: Reply) {
        self.seen().script.push_back(reply);
    }

    /// From now on everything that the script does not answer is answered like this.
    pub fn otherwise(&self, reply: Option<Reply>) {
        self.seen().otherwise = reply;
    }

    /// From now on bodies with this text are answered with 422.
    pub fn refuse_bodies_with(&self, text: &'static str) {
        self.seen().refused = Some(text);
    }

    pub fn posts(&self) -> Vec<Post> {
        self.seen().posts.clone()
    }

    /// The texts of what was taken, in order.
    pub fn taken(&self) -> Vec<String> {
        let posts = self.posts();
        posts.iter().filter(|post| post.taken).map(Post::text).collect()
    }

    pub fn most_in_flight(&self) -> usize {
        self.seen().most_in_flight
    }

    /// Options that post here, with short timeouts.
    pub fn options(&self) -> HttpOptions {
        HttpOptions::new(url(self.address))
            .format(HttpFormat::Discord)
            .answer_within(Duration::from_secs(30))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub fn url(address: SocketAddr) -> HttpUrl {
    format!("http://{address}/api/webhooks/123456/{SECRET}")
        .parse()
        .unwrap()
}

/// Counts a request for as long as it lives, also if its client gives up.
struct InFlight(Arc<Mutex<Seen>>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.lock().unwrap().in_flight -= 1;
    }
}

async fn answer(
    State(seen): State<Arc<Mutex<Seen>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if method == Method::GET {
        let reply = seen.lock().unwrap().otherwise.clone();
        return match reply {
            Some(Reply::Status(status)) => StatusCode::from_u16(status).unwrap().into_response(),
            _ => axum::Json(json!({"name": "donations"})).into_response(),
        };
    }
    let reply = {
        let mut seen = seen.lock().unwrap();
        seen.in_flight += 1;
        seen.most_in_flight = seen.most_in_flight.max(seen.in_flight);
        let reply = seen.script.pop_front().or_else(|| seen.otherwise.clone());
        let reply = reply.unwrap_or(Reply::Status(204));
        let refused = seen
            .refused
            .is_some_and(|text| String::from_utf8_lossy(&body).contains(text));
        let reply = if refused { Reply::Status(422) } else { reply };
        seen.posts.push(Post {
            uri,
            headers,
            body: serde_json::from_slice(&body).unwrap_or_default(),
            bytes: body,
            at: Instant::now(),
            taken: matches!(
                reply,
                Reply::Status(204) | Reply::Last(_) | Reply::Slow(_) | Reply::Unfinished
            ),
        });
        reply
    };
    let _in_flight = InFlight(Arc::clone(&seen));
    match reply {
        Reply::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Reply::RetryAfter(status, seconds) => {
            let status = StatusCode::from_u16(status).unwrap();
            (status, [("retry-after", seconds.to_string())]).into_response()
        }
        Reply::Throttle(seconds) => {
            let body = json!({"message": "You are being rate limited.", "retry_after": seconds, "global": false});
            (StatusCode::TOO_MANY_REQUESTS, axum::Json(body)).into_response()
        }
        Reply::Last(seconds) => {
            let limits = [
                ("x-ratelimit-remaining", "0".to_owned()),
                ("x-ratelimit-reset-after", seconds.to_string()),
            ];
            (limits, StatusCode::NO_CONTENT).into_response()
        }
        Reply::Hang => std::future::pending().await,
        Reply::Unfinished => Body::from_stream(stream::pending::<io::Result<Bytes>>()).into_response(),
        Reply::Slow(wait) => {
            tokio::time::sleep(wait).await;
            StatusCode::NO_CONTENT.into_response()
        }
    }
}
