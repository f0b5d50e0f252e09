//! What a message takes along of the place where it is enqueued.

use super::{BAGGAGE, TRACEPARENT, TRACESTATE};
use crate::envelope::attribute_name;
use crate::message::{Headers, Message};

/// The headers of the current context, taken once for all messages of a call.
#[derive(Debug, Default)]
pub(crate) struct Captured(Vec<(&'static str, String)>);

impl Captured {
    /// Those of the current OpenTelemetry context; none without the feature `otel`.
    pub(crate) fn current() -> Self {
        #[cfg(feature = "otel")]
        return Self(super::remote::current_headers());
        #[cfg(not(feature = "otel"))]
        Self::default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds them to a message, but for what its caller has set, and what would make its headers larger than they may be: a
    /// message is never refused because of its trace. Says which were added.
    pub(crate) fn add_to(&self, message: &mut Message, header_bytes: usize) -> Vec<&'static str> {
        let mut added = Vec::new();
        if self.is_empty() {
            return added;
        }
        let headers = &mut message.headers;
        let has_trace = has(headers, TRACEPARENT) || has(headers, TRACESTATE);
        let has_baggage = has(headers, BAGGAGE);
        let mut left = header_bytes.saturating_sub(headers.iter().map(|(name, value)| name.len() + value.len()).sum());
        for (name, value) in &self.0 {
            let is_set = if *name == BAGGAGE { has_baggage } else { has_trace };
            let bytes = name.len() + value.len();
            // What tracing systems say belongs to a span, and without it to none.
            let is_orphan = *name == TRACESTATE && !added.contains(&TRACEPARENT);
            if !is_set && !is_orphan && bytes <= left {
                left -= bytes;
                headers.insert((*name).to_owned(), value.clone());
                added.push(*name);
            }
        }
        added
    }
}

/// Whether a header has this name, or one that would travel under the same.
fn has(headers: &Headers, name: &str) -> bool {
    headers
        .keys()
        .any(|header| attribute_name(header).is_some_and(|attribute| attribute == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured() -> Captured {
        Captured(vec![
            (TRACEPARENT, "parent".to_owned()),
            (TRACESTATE, "state".to_owned()),
            (BAGGAGE, "b".repeat(100)),
        ])
    }

    #[test]
    fn what_the_caller_set_stays_and_takes_the_rest_of_its_trace_with_it() {
        let mut own = Message::new("t", "x").header("Trace-Parent", "mine");
        assert_eq!(captured().add_to(&mut own, 1_000), [BAGGAGE]);
        assert_eq!(own.headers["Trace-Parent"], "mine");
        let mut own = Message::new("t", "x").header(BAGGAGE, "mine");
        assert_eq!(captured().add_to(&mut own, 1_000), [TRACEPARENT, TRACESTATE]);
        assert_eq!(own.headers[BAGGAGE], "mine");
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let size = |headers: &Headers| {
            headers
                .iter()
                .map(|(name, value)| name.len() + value.len())
                .sum::<usize>()
        };
        for limit in 0..200 {
            let mut message = Message::new("t", "x").header("own", "0123456789");
            let before = message.headers.clone();
            let added = captured().add_to(&mut message, limit);
            assert!(added.is_empty() && message.headers == before || size(&message.headers) <= limit);
            assert!(!added.contains(&TRACESTATE) || added.contains(&TRACEPARENT));
        }
    }
}
