//! Properties with two names. Without this a default and its override under the other name would both be set, and
//! which of them won would be chance.

/// Names that mean another one.
const ALIASES: [(&str, &str); 9] = [
    ("metadata.broker.list", "bootstrap.servers"),
    ("max.in.flight", "max.in.flight.requests.per.connection"),
    ("queue.buffering.max.ms", "linger.ms"),
    ("message.send.max.retries", "retries"),
    ("request.required.acks", "acks"),
    ("message.timeout.ms", "delivery.timeout.ms"),
    ("compression.codec", "compression.type"),
    ("sasl.mechanisms", "sasl.mechanism"),
    ("fetch.message.max.bytes", "max.partition.fetch.bytes"),
];

/// The one name that stands for all names of a property.
pub(crate) fn canonical(name: &str) -> &str {
    let found = ALIASES.iter().find(|(alias, _)| *alias == name);
    found.map_or(name, |(_, canonical)| canonical)
}
