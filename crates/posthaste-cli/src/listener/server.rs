//! A small HTTP server for probes and scrapers, which cannot take the process's file descriptors.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections at a time. Further ones wait in the kernel, where they take no file descriptor of ours.
const MAX_CONNECTIONS: usize = 64;

/// Time for a request to come. Short, because those in the way of a probe are gone after it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for a request and its answer, which a client may be slow to read.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The wait after an `accept` that failed for want of file descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// Serves until it is dropped, its connections with it.
pub async fn serve(listener: TcpListener, router: Router) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut server = http1::Builder::new();
    // Scrapes are seconds apart: a connection that waits for the next one is only in the way of others.
    server
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&room).acquire_owned().await;
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_RETRY).await;
            continue;
        };
        let exchange = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        connections.spawn(async move {
            // What became of it is the client's concern, who sees it.
            let _ = timeout(EXCHANGE_TIMEOUT, exchange).await;
            drop(place);
        });
    }
}
