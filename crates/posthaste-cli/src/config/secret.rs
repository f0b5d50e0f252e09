//! Shows what was given without the secrets in it.

use figment::value::Value;

use super::database_url::without_password;

const HIDDEN: &str = "(hidden)";

/// A value as an error message may show it.
pub(super) fn show(field: &str, value: &Value) -> String {
    if may_be_secret(field, value) {
        return HIDDEN.to_owned();
    }
    let text = match value {
        Value::String(_, text) => format!("{text:?}"),
        other => serde_json::to_string(other).unwrap_or_default(),
    };
    without_password(&text)
}

fn may_be_secret(field: &str, value: &Value) -> bool {
    let has = |parts: &[&str]| parts.iter().any(|part| field.contains(part));
    if has(&["password", "secret", "pem", "jaas", "oauthbearer"]) {
        return true;
    }
    // A webhook's address lets anybody post.
    if field.starts_with("safety_net.alert") && (matches!(value, Value::Dict(..)) || field.contains(".url")) {
        return true;
    }
    if !["kafka", "publisher", "otel.headers"]
        .iter()
        .any(|section| field.starts_with(section))
    {
        return false;
    }
    // A whole table of Kafka's properties may hold any of them, and that of the publisher a webhook's address. So may a text
    // that stands where such a table belongs.
    let is_table = |name: &str| {
        let name = name.trim_end_matches(|one: char| one == '.' || one.is_ascii_digit());
        [
            "kafka",
            "publisher",
            "publishers",
            "connection",
            "properties",
            "headers",
        ]
        .iter()
        .any(|table| name == *table || name.ends_with(&format!(".{table}")))
    };
    let holds_others = matches!(value, Value::Dict(..) | Value::Array(..)) || is_table(field);
    holds_others || has(&[".url", ".proxy", ".bearer_token", ".headers."])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_is_hidden() {
        for field in [
            "publisher",
            "publishers.0",
            "publisher.url",
            "publishers.12.url",
            "publishers.1.headers.x-api-key",
            "publishers.1.connection",
            "publishers.1.connection.properties",
            "publisher.signing_secrets",
            "safety_net.alert.url",
            "kafka.properties",
            "kafka.properties.sasl.password",
        ] {
            assert_eq!(show(field, &Value::from("hush")), HIDDEN, "{field}");
        }
        for field in [
            "publisher.kind",
            "publishers.0.name",
            "kafka.properties.acks",
            "routes.0.to",
        ] {
            assert_eq!(show(field, &Value::from("all")), "\"all\"", "{field}");
        }
    }
}
