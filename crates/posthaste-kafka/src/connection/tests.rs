use super::*;

fn read(json: &str) -> Connection {
    serde_json::from_str(json).unwrap()
}

fn refused(connection: &Connection) -> String {
    connection.client_config(&[]).unwrap_err().to_string()
}

#[test]
fn brokers_may_be_a_list_or_text() {
    let expected = Connection::to("a:1,b:2");
    assert_eq!(read(r#"{"brokers": ["a:1", "b:2"]}"#), expected);
    assert_eq!(read(r#"{"brokers": "a:1, b:2"}"#), expected);
    assert!(serde_json::from_str::<Connection>(r#"{"broker": ["a:1"]}"#).is_err());
}

#[test]
fn properties_may_be_quoted_or_nested_and_of_any_plain_type() {
    let connection = read(
        r#"{"brokers": "a:1", "properties": {"linger.ms": 7, "sasl": {"username": "me", "password": "x"}, "sasl.password": "overridden",
            "enable.idempotence": false, "acks": "1"}}"#,
    );
    let found: Vec<_> = connection.properties.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        found,
        [
            "acks=1",
            "enable.idempotence=false",
            "linger.ms=7",
            "sasl.password=x",
            "sasl.username=me"
        ]
    );
    assert!(serde_json::from_str::<Connection>(r#"{"properties": {"linger.ms": [1]}}"#).is_err());
}

#[test]
fn properties_override_defaults_under_either_name() {
    let defaults = [("linger.ms", "5"), ("retries", "3")];
    let connection = Connection::to("a:1").property("queue.buffering.max.ms", "7");
    let config = connection.client_config(&defaults).unwrap();
    assert_eq!(config.get("linger.ms"), Some("7"));
    assert_eq!(config.get("queue.buffering.max.ms"), None);
    assert_eq!(config.get("retries"), Some("3"));
    assert_eq!(config.get("bootstrap.servers"), Some("a:1"));
    assert_eq!(config.get("client.id"), Some("posthaste"));
}

#[test]
fn what_cannot_work_is_refused_with_field_value_and_remedy() {
    assert_eq!(
        refused(&Connection::default()),
        r#"brokers = []: name at least one broker, such as ["127.0.0.1:9092"]"#
    );
    for bad in ["localhost", "a:b", ":9092", "a b:9092", "a:99999"] {
        assert!(refused(&Connection::to(bad)).starts_with(&format!("brokers = {bad:?}: write host:port")));
    }
    let with = |name: &str, value: &str| Connection::to("SASL_SSL://a:1").property(name, value);
    assert!(refused(&with("bootstrap.servers", "x")).contains("name the brokers in `brokers`"));
    assert!(refused(&with("metadata.broker.list", "x")).contains("name the brokers in `brokers`"));
    assert!(refused(&with("client.id", "x")).contains("`client_id`"));
    let unknown = refused(&with("linger.sm", "5"));
    assert!(
        unknown.starts_with("properties.linger.sm = (hidden): librdkafka has no such property"),
        "{unknown}"
    );
    assert!(refused(&with("linger.ms", "soon")).contains("linger.ms"));
    assert!(refused(&with("linger.ms", "soon")).contains("CONFIGURATION.md"));
    let twice = with("linger.ms", "5").property("queue.buffering.max.ms", "6");
    assert!(refused(&twice).contains("is another name for linger.ms"));
    assert!(refused(&with("sasl.mechanism", "GSSAPI")).contains("Kerberos is not built in"));
    assert!(refused(&with("sasl.mechanisms", "OAUTHBEARER")).contains("OAUTHBEARER is not built in"));
}

#[test]
fn owned_properties_are_refused_under_either_name() {
    let connection = Connection::to("a:1").property("request.required.acks", "0");
    let error = connection.refuse(&[("acks", "must stay `all`")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"properties.request.required.acks = "0": must stay `all`"#
    );
    assert_eq!(connection.refuse(&[("linger.ms", "no")]), Ok(()));
}

#[test]
fn secrets_are_not_shown() {
    let connection = Connection::to("a:1")
        .property("sasl.password", "hunter2")
        .property("sasl.username", "me")
        .property("ssl.key.pem", "hunter2")
        .property("sasl.oauthbearer.client.secret", "hunter2")
        .property("ssl.keystore.password", "hunter2");
    let shown = format!("{connection:?}");
    assert!(!shown.contains("hunter2") && shown.contains("\"me\""), "{shown}");
    let refused = Connection::to("a:1").property("sasl.pasword.secret", "hunter2");
    assert!(!self::refused(&refused).contains("hunter2"));
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_that_was_not_built_in_is_refused_with_the_feature_to_build() {
    for (name, value) in [
        ("security.protocol", "sasl_ssl"),
        ("ssl.ca.location", "/x"),
        ("sasl.mechanism", "SCRAM-SHA-256"),
    ] {
        let error = refused(&Connection::to("a:1").property(name, value));
        assert!(error.contains("`kafka-tls`"), "{error}");
    }
}
