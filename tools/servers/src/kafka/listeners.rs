use std::{fmt, io};

use super::KafkaOptions;
use crate::{Result, port};

/// The ports of one broker on 127.0.0.1, one for each way to talk to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listeners {
    pub(super) controller: u16,
    pub(super) plain: u16,
    pub(super) sasl: Option<u16>,
    pub(super) tls: Option<u16>,
}

impl Listeners {
    /// The value of `listener.security.protocol.map`.
    pub(super) const PROTOCOLS: &str = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL";

    /// Free ports for every broker, no two of them the same.
    pub(super) fn find(options: &KafkaOptions) -> Result<Vec<Self>> {
        let each = 2 + usize::from(options.sasl_plain.is_some()) + usize::from(options.tls);
        let ports = port::find_several_free(each * options.brokers)?;
        Ok(ports
            .chunks(each)
            .map(|ports| {
                let mut ports = ports.iter().copied();
                let mut next = || ports.next().expect("as many as were counted");
                Self {
                    controller: next(),
                    plain: next(),
                    sasl: options.sasl_plain.is_some().then(&mut next),
                    tls: options.tls.then(&mut next),
                }
            })
            .collect())
    }

    /// The value of `advertised.listeners`: all but the controller's, which is found by `controller.quorum.voters`.
    pub(super) fn advertised(self) -> String {
        shown(&self.named()[1..])
    }

    /// Reads what `to_string` made.
    pub(super) fn parse(text: &str) -> io::Result<Self> {
        let port = |name: &str| {
            let start = format!("{name}://127.0.0.1:");
            text.split(',')
                .find_map(|listener| listener.strip_prefix(&start)?.parse().ok())
        };
        let required = |name| port(name).ok_or_else(|| io::Error::other(format!("no {name} listener in `{text}`")));
        Ok(Self {
            controller: required("CONTROLLER")?,
            plain: required("PLAINTEXT")?,
            sasl: port("SASL_PLAINTEXT"),
            tls: port("SSL"),
        })
    }

    fn named(self) -> Vec<(&'static str, u16)> {
        let ports = [
            ("CONTROLLER", Some(self.controller)),
            ("PLAINTEXT", Some(self.plain)),
            ("SASL_PLAINTEXT", self.sasl),
            ("SSL", self.tls),
        ];
        ports
            .into_iter()
            .filter_map(|(name, port)| Some((name, port?)))
            .collect()
    }
}

/// The value of `listeners`.
impl fmt::Display for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.named()))
    }
}

fn shown(listeners: &[(&str, u16)]) -> String {
    let urls: Vec<_> = listeners
        .iter()
        .map(|(name, port)| format!("{name}://127.0.0.1:{port}"))
        .collect();
    urls.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_as_they_are_written() {
        for (sasl, tls) in [(None, None), (Some(3), None), (None, Some(4)), (Some(3), Some(4))] {
            let listeners = Listeners {
                controller: 1,
                plain: 2,
                sasl,
                tls,
            };
            assert_eq!(Listeners::parse(&listeners.to_string()).unwrap(), listeners);
        }
        assert!(Listeners::parse("PLAINTEXT://127.0.0.1:2").is_err());
    }

    #[test]
    fn the_controller_is_not_advertised() {
        let listeners = Listeners {
            controller: 1,
            plain: 2,
            sasl: Some(3),
            tls: None,
        };
        assert_eq!(
            listeners.advertised(),
            "PLAINTEXT://127.0.0.1:2,SASL_PLAINTEXT://127.0.0.1:3"
        );
    }

    #[test]
    fn every_listener_of_every_broker_has_its_own_port() {
        let options = KafkaOptions {
            tls: true,
            ..KafkaOptions::default()
        };
        let found = Listeners::find(&options).unwrap();
        assert_eq!(found.len(), 3);
        let mut ports: Vec<_> = found
            .iter()
            .flat_map(|broker| [broker.controller, broker.plain, broker.tls.unwrap()])
            .collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 9);
        assert!(found.iter().all(|broker| broker.sasl.is_none()));
    }
}
