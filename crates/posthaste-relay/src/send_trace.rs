//! What is remembered of a message's trace while the publisher has it. Without the feature `otel` that is nothing.

#[cfg(not(feature = "otel"))]
mod none;
#[cfg(feature = "otel")]
mod otel;

#[cfg(not(feature = "otel"))]
pub(crate) use none::SendTrace;
#[cfg(feature = "otel")]
pub(crate) use otel::SendTrace;
