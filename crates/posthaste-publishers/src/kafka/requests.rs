//! How many requests a broker may have under way.
//!
//! An idempotent producer of librdkafka has one request of a partition under way, unless that holds a handful of messages.
//! While more of the partition is due, the broker's thread asks without a pause whether it may go by now, which takes a whole
//! core. It rests only while some request is made and may not go because too many are under way. With one fewer than
//! there are partitions such a request is always there in a backlog, and hardly any time is lost: each takes along all
//! that came for its partition meanwhile.

use rdkafka::ClientConfig;

pub(super) const PROPERTY: &str = "max.in.flight.requests.per.connection";

/// How many a producer allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requests {
    /// As many as the settings say.
    AsConfigured,
    /// At most as many, and fewer where brokers lead few partitions.
    UpTo(usize),
}

impl Requests {
    /// Those of a producer with these settings.
    pub(super) fn of(config: &ClientConfig, is_set_by_user: bool) -> Self {
        let is_idempotent = config.get("enable.idempotence") == Some("true");
        match config.get(PROPERTY).and_then(|text| text.parse().ok()) {
            Some(most) if is_idempotent && !is_set_by_user => Self::UpTo(most),
            _ => Self::AsConfigured,
        }
    }

    /// How many a broker may have under way that leads so many partitions; none if the settings say it.
    pub(super) fn beside(self, partitions: Option<usize>) -> Option<usize> {
        match self {
            Self::AsConfigured => None,
            Self::UpTo(most) => Some(partitions.map_or(most, |led| led.saturating_sub(1).clamp(1, most))),
        }
    }

    /// Writes it down.
    pub(super) fn set(config: &mut ClientConfig, requests: usize) {
        config.set(PROPERTY, requests.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(idempotent: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("enable.idempotence", idempotent).set(PROPERTY, "5");
        config
    }

    #[test]
    fn one_partition_of_each_broker_waits_while_the_others_are_under_way() {
        let requests = Requests::of(&config("true"), false);
        let beside = |partitions| requests.beside(Some(partitions));
        assert_eq!([beside(1), beside(2), beside(4)], [Some(1), Some(1), Some(3)]);
        assert_eq!([beside(6), beside(100)], [Some(5), Some(5)]);
        assert_eq!(requests.beside(None), Some(5), "nothing is known yet");
    }

    #[test]
    fn what_a_user_has_set_holds_and_so_it_does_without_idempotence() {
        assert_eq!(Requests::of(&config("true"), true).beside(Some(4)), None);
        assert_eq!(Requests::of(&config("false"), false).beside(Some(4)), None);
    }
}
