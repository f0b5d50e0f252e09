//! What librdkafka, as it was built, can do.

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;

const REFERENCE: &str = "https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md";

/// The remedy for a property that asks for something which was left out of this build.
pub(super) fn missing(name: &str, value: &str) -> Option<String> {
    let value = value.to_ascii_lowercase();
    let needs_tls = match super::alias::canonical(name) {
        "security.protocol" => value.ends_with("ssl"),
        "sasl.mechanism" => value.starts_with("scram"),
        other => other.starts_with("ssl.") || other.starts_with("ssl_"),
    };
    if needs_tls && !built_in("ssl") {
        return Some(
            "needs TLS, which this program was built without; build it with the feature `kafka-tls`, which takes \
             OpenSSL's headers"
                .to_owned(),
        );
    }
    let mechanism = super::alias::canonical(name) == "sasl.mechanism";
    let others = [
        ("gssapi", "sasl_gssapi", "Kerberos"),
        ("oauthbearer", "oidc", "OAUTHBEARER"),
    ];
    let left_out = |(mechanism, feature, _): &(&str, &str, &str)| value == *mechanism && !built_in(feature);
    let left_out = others.into_iter().filter(|_| mechanism).find(left_out);
    left_out.map(|(_, _, name)| format!("{name} is not built in; use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"))
}

/// Why librdkafka does not take a property, with the remedy.
pub(super) enum Refusal {
    /// It has none of this name.
    Unknown(String),
    /// Its value is wrong.
    Value(String),
}

/// Whether librdkafka knows the property and takes the value.
pub(super) fn check(name: &str, value: &str) -> Result<(), Refusal> {
    match ClientConfig::new().set(name, value).create_native_config() {
        Ok(_) => Ok(()),
        Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)) => Err(Refusal::Unknown(format!(
            "librdkafka has no such property; see {REFERENCE} (the Java client's names are not all the same)"
        ))),
        Err(KafkaError::ClientConfig(_, said, _, _)) => Err(Refusal::Value(format!(
            "{}; see {REFERENCE}",
            said.trim_end_matches('.')
        ))),
        Err(other) => Err(Refusal::Value(format!("{other}; see {REFERENCE}"))),
    }
}

fn built_in(feature: &str) -> bool {
    let features = ClientConfig::new()
        .create_native_config()
        .and_then(|config| config.get("builtin.features"));
    features.is_ok_and(|features| features.split(',').any(|built_in| built_in == feature))
}
