//! What a format fills a request with.

use bytes::Bytes;
use http::HeaderMap;

/// What goes into a request besides what all of them have.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}
