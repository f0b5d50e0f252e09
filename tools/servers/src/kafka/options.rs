use std::{fmt::Write, path::Path};

use super::{listeners::Listeners, tls};

/// How a private Kafka cluster is set up.
#[derive(Debug, Clone)]
pub struct KafkaOptions {
    /// How many brokers there are, each one a controller, too. With fewer than three every partition has one replica.
    /// Defaults to 3.
    pub brokers: usize,

    /// Further server properties, by name and value, for every broker; they win over the crate's own. Defaults to none.
    pub properties: Vec<(String, String)>,

    /// Adds a listener on which this user must give this password, by SASL PLAIN over an open connection. Defaults to
    /// `None`.
    pub sasl_plain: Option<(String, String)>,

    /// Adds a TLS listener, with a certificate for 127.0.0.1 and `localhost` that an authority made for this cluster
    /// has signed. Defaults to `false`.
    pub tls: bool,
}

impl Default for KafkaOptions {
    fn default() -> Self {
        Self {
            brokers: 3,
            properties: Vec::new(),
            sasl_plain: None,
            tls: false,
        }
    }
}

impl KafkaOptions {
    /// The `server.properties` of the broker with this index.
    pub(super) fn server_properties(&self, index: usize, data: &Path, cluster: &[Listeners], home: &Path) -> String {
        let listeners = cluster[index];
        let voters: Vec<_> = (1..)
            .zip(cluster)
            .map(|(id, broker)| format!("{id}@127.0.0.1:{}", broker.controller))
            .collect();
        let (replicas, in_sync) = if self.brokers < 3 { ("1", "1") } else { ("3", "2") };

        let mut properties: Vec<(&str, String)> = vec![
            ("process.roles", "broker,controller".into()),
            ("node.id", (index + 1).to_string()),
            ("controller.quorum.voters", voters.join(",")),
            ("controller.listener.names", "CONTROLLER".into()),
            ("listener.security.protocol.map", Listeners::PROTOCOLS.into()),
            ("inter.broker.listener.name", "PLAINTEXT".into()),
            ("listeners", listeners.to_string()),
            ("advertised.listeners", listeners.advertised()),
            ("log.dirs", data.display().to_string()),
        ];
        properties.extend(
            [
                // A topic that somebody forgot to create must not appear by itself.
                ("auto.create.topics.enable", "false"),
                ("default.replication.factor", replicas),
                ("min.insync.replicas", in_sync),
                ("offsets.topic.replication.factor", replicas),
                ("offsets.topic.num.partitions", "3"),
                ("transaction.state.log.replication.factor", replicas),
                ("transaction.state.log.min.isr", in_sync),
                ("transaction.state.log.num.partitions", "3"),
                ("share.coordinator.state.topic.replication.factor", replicas),
                ("share.coordinator.state.topic.min.isr", in_sync),
                ("share.coordinator.state.topic.num.partitions", "3"),
                // Tests wait for a group's assignment, for the leader that follows a killed one, and for the killed
                // one itself, which is not let in again before its session is over.
                ("group.initial.rebalance.delay.ms", "0"),
                ("group.min.session.timeout.ms", "1000"),
                ("broker.session.timeout.ms", "3000"),
                ("broker.heartbeat.interval.ms", "300"),
                // Threads and files for a few clients, not for a data centre.
                ("num.network.threads", "2"),
                ("num.io.threads", "4"),
                ("background.threads", "2"),
                ("num.recovery.threads.per.data.dir", "1"),
                ("log.cleaner.dedupe.buffer.size", "4194304"),
                ("log.index.size.max.bytes", "65536"),
            ]
            .map(|(name, value)| (name, value.to_owned())),
        );
        if let Some((user, password)) = &self.sasl_plain {
            properties.push(("sasl.enabled.mechanisms", "PLAIN".into()));
            properties.push((
                "listener.name.sasl_plaintext.plain.sasl.jaas.config",
                jaas(user, password),
            ));
        }
        if self.tls {
            properties.extend(tls::properties(home));
        }
        properties.extend(
            self.properties
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone())),
        );
        lines(&properties)
    }
}

fn jaas(user: &str, password: &str) -> String {
    let quoted = |text: &str| text.replace('\\', r"\\").replace('"', r#"\""#);
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    format!(r#"{module} required user_{}="{}";"#, user, quoted(password))
}

/// Of two lines for one name Java takes the last.
fn lines(properties: &[(&str, String)]) -> String {
    let mut lines = String::new();
    for (name, value) in properties {
        let value = value.replace('\\', r"\\").replace('\n', r"\n");
        writeln!(lines, "{name}={value}").expect("a String takes all that is written");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_first_broker(options: &KafkaOptions) -> String {
        let listeners = Listeners {
            controller: 1,
            plain: 2,
            sasl: None,
            tls: None,
        };
        let cluster = vec![listeners; options.brokers];
        options.server_properties(0, Path::new("/d/data"), &cluster, Path::new("/d"))
    }

    #[test]
    fn own_properties_come_last() {
        let properties = vec![("min.insync.replicas".into(), "3".into())];
        let text = of_first_broker(&KafkaOptions {
            properties,
            ..KafkaOptions::default()
        });
        assert!(text.contains("min.insync.replicas=2\n"));
        assert!(text.ends_with("min.insync.replicas=3\n"));
    }

    #[test]
    fn a_single_broker_replicates_nothing() {
        let text = of_first_broker(&KafkaOptions {
            brokers: 1,
            ..KafkaOptions::default()
        });
        assert!(text.contains("controller.quorum.voters=1@127.0.0.1:1\n"));
        assert!(text.contains("\ndefault.replication.factor=1\n"));
        assert!(text.contains("\noffsets.topic.replication.factor=1\n"));
    }

    #[test]
    fn quotes_and_backslashes_in_a_password_are_kept() {
        let sasl_plain = Some(("ada".into(), r#"a"b\c"#.into()));
        let text = of_first_broker(&KafkaOptions {
            sasl_plain,
            ..KafkaOptions::default()
        });
        assert!(text.contains(r#" required user_ada="a\\"b\\\\c";"#), "{text}");
    }
}
