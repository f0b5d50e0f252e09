//! The span of each attempt to send a message, in the trace of the span that enqueued it.
//!
//! Made when the attempt is over, by OpenTelemetry's own interface: a `tracing` span for each message would cost every relay,
//! also those that nobody traces. Messages without a trace have no spans.

#[cfg(not(feature = "otel"))]
mod none;
#[cfg(feature = "otel")]
mod otel;

#[cfg(not(feature = "otel"))]
pub(crate) use none::SendSpans;
#[cfg(feature = "otel")]
pub(crate) use otel::SendSpans;
