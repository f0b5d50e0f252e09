//! Receivers of HTTP requests on the loopback interface: one that takes them, and two sorts of dead ones.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// Answers at once, and knows when each event came.
pub(crate) struct Receiver {
    address: SocketAddr,
    arrived: Arc<Mutex<HashMap<String, Instant>>>,
    _server: AbortOnDropHandle<()>,
}

impl Receiver {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let arrived = Arc::<Mutex<HashMap<String, Instant>>>::default();
        let take = {
            let arrived = Arc::clone(&arrived);
            async move |headers: HeaderMap| {
                let at = Instant::now();
                let Some(id) = headers.get("ce-id").and_then(|id| id.to_str().ok()) else {
                    return StatusCode::BAD_REQUEST;
                };
                lock(&arrived).entry(id.to_owned()).or_insert(at);
                StatusCode::NO_CONTENT
            }
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let server = axum::serve(listener, Router::new().fallback(take));
        Ok(Self {
            address,
            arrived,
            _server: AbortOnDropHandle::new(tokio::spawn(async move {
                let _ = server.await;
            })),
        })
    }

    pub(crate) fn url(&self) -> String {
        url(self.address)
    }

    /// When an event came first.
    pub(crate) fn arrived(&self, id: &str) -> Option<Instant> {
        lock(&self.arrived).get(id).copied()
    }
}

/// Takes connections and never answers.
pub(crate) struct SilentReceiver {
    address: SocketAddr,
    _server: AbortOnDropHandle<()>,
}

impl SilentReceiver {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let keep = async move {
            let mut connections = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                connections.push(connection);
            }
        };
        Ok(Self {
            address,
            _server: AbortOnDropHandle::new(tokio::spawn(keep)),
        })
    }

    pub(crate) fn url(&self) -> String {
        url(self.address)
    }
}

/// An address at which connections are refused: it was free a moment ago.
pub(crate) async fn refusing_url() -> anyhow::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    Ok(url(listener.local_addr()?))
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}/")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
