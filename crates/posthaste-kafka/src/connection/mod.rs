//! How to reach a cluster.

mod alias;
mod capability;
mod invalid;
pub mod reading;

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use serde::Deserialize;

use self::capability::Refusal;

pub use self::invalid::InvalidConnection;

/// A Kafka cluster and the way to it.
///
/// `properties` may be any of [librdkafka's](https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md),
/// as text, number or boolean, with quoted, dotted or nested names: `"sasl.password"`, `sasl.password` and a table
/// `sasl` with `password` in it mean the same. `Debug` does not show their secrets.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Connection {
    /// Some of the cluster's brokers, as `host:port`; the others are learnt from them. As text: separated by commas.
    #[serde(deserialize_with = "reading::brokers")]
    pub brokers: Vec<String>,
    /// The name by which brokers know this client, in their logs and quotas. Defaults to `posthaste`.
    pub client_id: Option<String>,
    /// Properties of librdkafka, which override Posthaste's own defaults.
    #[serde(deserialize_with = "reading::properties")]
    pub properties: BTreeMap<String, String>,
}

/// `message.max.bytes` of every producer unless the properties say otherwise: the most that brokers read. How large a
/// record may be is for its topic to say.
pub const MESSAGE_MAX_BYTES: &str = "104857600";

/// Properties with a field of their own.
const FIELDS: [(&str, &str); 3] = [
    ("bootstrap.servers", "name the brokers in `brokers` instead"),
    ("metadata.broker.list", "name the brokers in `brokers` instead"),
    ("client.id", "name the client in `client_id` instead"),
];

impl Connection {
    /// A connection to `brokers`, given as `host:port` and separated by commas.
    pub fn to(brokers: &str) -> Self {
        Self {
            brokers: reading::split(brokers),
            ..Self::default()
        }
    }

    /// Sets one of librdkafka's properties.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Whether the properties set this one, by whichever name.
    pub fn sets(&self, name: &str) -> bool {
        let same = |given: &String| alias::canonical(given) == alias::canonical(name);
        self.properties.keys().any(same)
    }

    /// Refuses properties that would break what the program is built on; each comes with the reason and the remedy.
    pub fn refuse(&self, owned: &[(&str, &str)]) -> Result<(), InvalidConnection> {
        let refused = owned.iter().find_map(|&(name, reason)| {
            let same = |given: &&String| alias::canonical(given) == alias::canonical(name);
            self.properties.keys().find(same).map(|given| (given, reason))
        });
        match refused {
            Some((given, reason)) => Err(self.invalid(given, reason)),
            None => Ok(()),
        }
    }

    /// The settings of a client: `defaults` where nothing else is given, and the properties. Says which of them cannot
    /// work, as far as that can be known without a connection.
    pub fn client_config(&self, defaults: &[(&str, &str)]) -> Result<ClientConfig, InvalidConnection> {
        self.check_brokers()?;
        self.refuse(&FIELDS)?;
        self.check_properties()?;
        let mut config = ClientConfig::new();
        // What the client has to say comes through its context, which decides what of it is worth a line.
        config.set_log_level(RDKafkaLogLevel::Info);
        config.set("bootstrap.servers", self.brokers.join(","));
        config.set("client.id", self.client_id.as_deref().unwrap_or("posthaste"));
        for (name, value) in defaults {
            config.set(alias::canonical(name), *value);
        }
        for (name, value) in &self.properties {
            config.set(alias::canonical(name), value);
        }
        Ok(config)
    }

    fn check_brokers(&self) -> Result<(), InvalidConnection> {
        let refuse = |value: String, remedy: &str| {
            Err(InvalidConnection {
                field: "brokers".to_owned(),
                value,
                remedy: remedy.to_owned(),
            })
        };
        if self.brokers.is_empty() {
            return refuse(
                "[]".to_owned(),
                "name at least one broker, such as [\"127.0.0.1:9092\"]",
            );
        }
        match self.brokers.iter().find(|broker| !is_address(broker)) {
            Some(broker) => refuse(format!("{broker:?}"), "write host:port, such as \"127.0.0.1:9092\""),
            None => Ok(()),
        }
    }

    fn check_properties(&self) -> Result<(), InvalidConnection> {
        let mut seen = BTreeMap::new();
        for (name, value) in &self.properties {
            if let Some(twin) = seen.insert(alias::canonical(name), name) {
                let remedy = format!("is another name for {twin}, which is set too; leave one of them out");
                return Err(self.invalid(name, &remedy));
            }
            if let Some(remedy) = capability::missing(name, value) {
                return Err(self.invalid(name, &remedy));
            }
            capability::check(name, value).map_err(|refusal| match refusal {
                // It may be a misspelt secret.
                Refusal::Unknown(remedy) => InvalidConnection {
                    value: HIDDEN.to_owned(),
                    ..self.invalid(name, &remedy)
                },
                Refusal::Value(remedy) => self.invalid(name, &remedy),
            })?;
        }
        Ok(())
    }

    fn invalid(&self, property: &str, remedy: &str) -> InvalidConnection {
        let value = self.properties.get(property).map_or("", String::as_str);
        InvalidConnection {
            field: format!("properties.{property}"),
            value: if is_secret(property) {
                HIDDEN.to_owned()
            } else {
                format!("{value:?}")
            },
            remedy: remedy.to_owned(),
        }
    }
}

const HIDDEN: &str = "(hidden)";

/// Whether a property's value must not be shown.
fn is_secret(property: &str) -> bool {
    // `key.pem`: the private key itself, other than `key.location`.
    ["password", "secret", "key.pem", "ssl_key", "jaas", "oauthbearer.config"]
        .iter()
        .any(|part| property.contains(part))
}

fn is_address(broker: &str) -> bool {
    let host_and_port = broker.split_once("://").map_or(broker, |(_, rest)| rest);
    let Some((host, port)) = host_and_port.rsplit_once(':') else {
        return false;
    };
    !host.is_empty() && !broker.contains(|c: char| c.is_whitespace() || c == ',') && port.parse::<u16>().is_ok()
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value): (&'_ String, &'_ String)| {
            let value = if is_secret(name) { HIDDEN } else { value };
            (name.clone(), value.to_owned())
        };
        f.debug_struct("Connection")
            .field("brokers", &self.brokers)
            .field("client_id", &self.client_id)
            .field(
                "properties",
                &self.properties.iter().map(shown).collect::<BTreeMap<_, _>>(),
            )
            .finish()
    }
}

#[cfg(test)]
mod tests;
