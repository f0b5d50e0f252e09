//! The trace that a message belongs to, as its headers say: W3C Trace Context and Baggage.
//!
//! With the feature `otel` a message takes the current OpenTelemetry context along when it is enqueued. The headers are
//! the same whoever writes them, so that what another language or a SQL function wrote is understood without it.

#[cfg(feature = "otel")]
mod baggage;
mod capture;
#[cfg(feature = "otel")]
mod remote;

use crate::message::Headers;

pub(crate) use capture::Captured;
#[cfg(feature = "otel")]
pub use remote::{remote_context, span_context};

/// Which span a message comes from.
pub const TRACEPARENT: &str = "traceparent";

/// What tracing systems say beside it.
pub const TRACESTATE: &str = "tracestate";

/// What the application lets travel along.
pub const BAGGAGE: &str = "baggage";

/// A `traceparent`: `00-{trace id}-{span id}-{flags}`, in lower-case hexadecimal digits.
///
/// # Examples
/// ```
/// use posthaste_core::trace::TraceParent;
///
/// let parent = TraceParent::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").expect("a traceparent");
/// assert_eq!(parent.trace_id, "0af7651916cd43dd8448eb211c80319c");
/// assert!(parent.is_sampled());
/// assert_eq!(TraceParent::parse("00-00000000000000000000000000000000-b7ad6b7169203331-01"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent<'a> {
    /// 32 digits, not all of them zero.
    pub trace_id: &'a str,
    /// 16 digits, not all of them zero.
    pub span_id: &'a str,
    /// The lowest bit says whether the trace is recorded.
    pub flags: u8,
}

impl<'a> TraceParent<'a> {
    /// Reads a header; `None` if it is not one. Later versions may append further parts.
    pub fn parse(header: &'a str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let version = hexadecimal(parts.next()?, 2)?;
        let trace_id = hexadecimal(parts.next()?, 32).filter(|id| !is_zero(id))?;
        let span_id = hexadecimal(parts.next()?, 16).filter(|id| !is_zero(id))?;
        let flags = u8::from_str_radix(hexadecimal(parts.next()?, 2)?, 16).ok()?;
        let is_known = version != "ff" && (version != "00" || parts.next().is_none());
        is_known.then_some(Self {
            trace_id,
            span_id,
            flags,
        })
    }

    /// That of a message or a received event.
    pub fn of(headers: &'a Headers) -> Option<Self> {
        Self::parse(headers.get(TRACEPARENT)?)
    }

    /// Whether the trace is recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}

fn hexadecimal(part: &str, digits: usize) -> Option<&str> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (part.len() == digits && part.bytes().all(is_digit)).then_some(part)
}

fn is_zero(id: &str) -> bool {
    id.bytes().all(|digit| digit == b'0')
}

/// The id of the trace that a message belongs to, for log lines.
pub fn trace_id(headers: &Headers) -> Option<&str> {
    Some(TraceParent::of(headers)?.trace_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_standard_allows_is_a_trace_parent() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        assert!(!TraceParent::parse(good).unwrap().is_sampled());
        assert!(TraceParent::parse(&format!(" {good} ")).is_some());
        assert!(TraceParent::parse(&format!("cc{}-later", &good[2..])).is_some());
        for bad in [
            "",
            "00-ab",
            &format!("ff{}", &good[2..]),
            &format!("{good}-more"),
            &good.to_uppercase(),
            &good.replace("b7ad6b7169203331", "0000000000000000"),
            &good.replace('0', "ü"),
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }
}
