//! The publisher suite, on each publisher with what it publishes to.

#[cfg(feature = "callback")]
mod callback;
#[cfg(all(feature = "file", target_os = "linux"))]
mod file;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kafka")]
mod kafka_mock;
#[cfg(feature = "log")]
mod log;
#[cfg(all(feature = "stdout", target_os = "linux"))]
mod stdout;

use std::sync::Arc;

use posthaste_core::Publisher;
use posthaste_publishers::{Route, Routed};

/// Both behind one publisher; messages on the topic `dead` go to the dead one.
fn beside(dead: Arc<dyn Publisher>, well: Arc<dyn Publisher>) -> (Arc<dyn Publisher>, String) {
    let publishers = vec![("dead".to_owned(), dead), ("well".to_owned(), well)];
    let routes = vec![Route::to("dead").topic("dead"), Route::to("well")];
    (Arc::new(Routed::new(publishers, routes).unwrap()), "dead".to_owned())
}
