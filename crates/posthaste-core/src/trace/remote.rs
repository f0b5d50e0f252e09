//! Between OpenTelemetry's context and headers. Not by its propagators: those are set per process, and by default there is
//! none, while what a message says must not depend on that.

use std::str::FromStr;

use opentelemetry::Context;
use opentelemetry::baggage::BaggageExt;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};

use super::{BAGGAGE, TRACEPARENT, TRACESTATE, TraceParent, baggage};
use crate::message::Headers;

/// How long a `tracestate` may be, as the standard has it.
const MAX_TRACESTATE_BYTES: usize = 512;

/// The headers of the current context: of an OpenTelemetry span that is active, or of a `tracing` span with the layer of
/// `tracing-opentelemetry`, which activates the context of a span that is entered.
pub(super) fn current_headers() -> Vec<(&'static str, String)> {
    Context::map_current(|context| {
        let mut headers = Vec::new();
        if context.has_active_span() && context.span().span_context().is_valid() {
            let span = context.span().span_context().clone();
            let flags = span.trace_flags() & TraceFlags::SAMPLED;
            headers.push((
                TRACEPARENT,
                format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), flags),
            ));
            let state = span.trace_state().header();
            headers.extend(fitting(TRACESTATE, state, MAX_TRACESTATE_BYTES));
        }
        let entries = context.baggage();
        if !entries.is_empty() {
            headers.extend(fitting(BAGGAGE, baggage::encode(entries), baggage::MAX_BYTES));
        }
        headers
    })
}

/// A header that a message can carry.
fn fitting(name: &'static str, value: String, limit: usize) -> Option<(&'static str, String)> {
    let is_text = !value.is_empty() && !value.contains(|c: char| c.is_ascii_control());
    (is_text && value.len() <= limit).then_some((name, value))
}

/// The span that a message comes from, if its headers name one.
pub fn span_context(headers: &Headers) -> Option<SpanContext> {
    let parent = TraceParent::of(headers)?;
    let state = headers
        .get(TRACESTATE)
        .and_then(|state| TraceState::from_str(state).ok());
    Some(SpanContext::new(
        TraceId::from_hex(parent.trace_id).ok()?,
        SpanId::from_hex(parent.span_id).ok()?,
        TraceFlags::new(parent.flags) & TraceFlags::SAMPLED,
        true,
        state.unwrap_or_default(),
    ))
}

/// The context that a message comes from: its span, if its headers name one, and its baggage. Nothing of the current one.
pub fn remote_context(headers: &Headers) -> Context {
    let mut context = Context::new();
    if let Some(span) = span_context(headers) {
        context = context.with_remote_span_context(span);
    }
    match headers.get(BAGGAGE) {
        Some(header) => context.with_baggage(baggage::decode(header)),
        None => context,
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::KeyValue;

    use super::*;
    use crate::Message;
    use crate::enqueue::{OutboxOptions, Prepared};
    use crate::validate::Limits;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn context() -> Context {
        let headers = Headers::from([
            (TRACEPARENT.to_owned(), PARENT.to_owned()),
            (TRACESTATE.to_owned(), "vendor=1,other=a".to_owned()),
        ]);
        remote_context(&headers).with_baggage([KeyValue::new("tenant", "Łódź, 1=1;")])
    }

    fn enqueued(message: Message, options: &OutboxOptions) -> Message {
        let mut prepared = Prepared::new([message], options).unwrap();
        prepared.rows.remove(0).message
    }

    #[test]
    fn a_message_takes_the_current_context_along_and_gives_it_back() {
        let _active = context().attach();
        let message = enqueued(Message::new("t", "x"), &OutboxOptions::default());
        assert_eq!(message.headers[TRACEPARENT], PARENT);
        assert_eq!(message.headers[TRACESTATE], "vendor=1,other=a");
        let given = remote_context(&message.headers);
        assert_eq!(given.span().span_context(), context().span().span_context());
        assert_eq!(given.baggage().get("tenant").unwrap().as_str(), "Łódź, 1=1;");
    }

    #[test]
    fn without_a_context_a_message_stays_as_it_is() {
        let message = enqueued(Message::new("t", "x"), &OutboxOptions::default());
        assert_eq!(message.headers, Headers::new());
        assert!(!remote_context(&message.headers).has_active_span());
    }

    /// Messages that were accepted without a trace are accepted with any.
    #[test]
    fn a_context_never_refuses_a_message() {
        let wild = KeyValue::new("k", "\u{7f}\r\n".repeat(900));
        let _active = context().with_baggage([wild]).attach();
        for limit in [10, 100, 200, 4_000, 16_384] {
            let options = OutboxOptions::new().limits(Limits::new().header_bytes(limit));
            let message = enqueued(Message::new("t", "x").header("own", "1234567"), &options);
            assert_eq!(message.headers.contains_key(TRACEPARENT), limit >= 100, "{limit}");
        }
    }
}
