//! Which spans are recorded.

use opentelemetry::trace::{Link, SpanKind, TraceContextExt, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{Sampler, SamplingResult, ShouldSample};

/// A share of the traces that were recorded where they began. All spans of the relay have a parent, so that a sampler which
/// leaves the decision to that one would know no share.
#[derive(Clone, Debug)]
pub(super) struct ShareOfRecorded(pub(super) f64);

impl ShouldSample for ShareOfRecorded {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let is_recorded =
            parent.is_none_or(|context| !context.has_active_span() || context.span().span_context().is_sampled());
        let sampler = if is_recorded {
            Sampler::TraceIdRatioBased(self.0)
        } else {
            Sampler::AlwaysOff
        };
        sampler.should_sample(parent, trace_id, name, kind, attributes, links)
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceState};
    use opentelemetry_sdk::trace::SamplingDecision;

    use super::*;

    fn decision(share: f64, flags: TraceFlags) -> SamplingDecision {
        let trace = TraceId::from(u128::MAX / 3);
        let span = SpanContext::new(trace, SpanId::from(7), flags, true, TraceState::default());
        let parent = Context::new().with_remote_span_context(span);
        let kind = SpanKind::Producer;
        let sampler = ShareOfRecorded(share);
        sampler
            .should_sample(Some(&parent), trace, "send", &kind, &[], &[])
            .decision
    }

    #[test]
    fn of_recorded_traces_a_share_and_of_others_none() {
        assert_eq!(decision(1.0, TraceFlags::SAMPLED), SamplingDecision::RecordAndSample);
        assert_eq!(decision(0.0, TraceFlags::SAMPLED), SamplingDecision::Drop);
        assert_eq!(decision(1.0, TraceFlags::NOT_SAMPLED), SamplingDecision::Drop);
    }
}
