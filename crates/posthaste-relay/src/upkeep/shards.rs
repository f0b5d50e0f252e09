//! What is shown of the shards of a log. There may be any number of them, so those with high numbers are shown as one, `other`.

use std::collections::BTreeMap;

use metrics::gauge;
use posthaste_core::store::{Reading, ShardStatus};

use crate::upkeep::health::Health;

/// Shards with lower numbers are shown by themselves.
const MAX_SHOWN: i32 = 128;

/// How a shard is named in figures.
fn label(shard: i32) -> String {
    if shard < MAX_SHOWN {
        shard.to_string()
    } else {
        "other".to_owned()
    }
}

/// The shards that this relay was shown to read.
pub(crate) struct ShownShards {
    namespace: String,
    read: BTreeMap<String, u32>,
}

impl ShownShards {
    pub(crate) fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            read: BTreeMap::new(),
        }
    }

    /// Shows what this relay knows of how it reads.
    pub(crate) fn show(&mut self, reading: Reading, health: &Health) {
        self.read.values_mut().for_each(|read| *read = 0);
        for shard in &reading.shards {
            *self.read.entry(label(*shard)).or_default() += 1;
        }
        let namespace = &self.namespace;
        for (shard, read) in &self.read {
            gauge!("outbox_log_shard_read", "namespace" => namespace.clone(), "shard" => shard.clone())
                .set(f64::from(*read));
        }
        gauge!("outbox_log_generation_waiting_seconds", "namespace" => namespace.clone())
            .set(reading.waiting.as_secs_f64());
        gauge!("outbox_log_notices", "namespace" => namespace.clone())
            .set(f64::from(u32::try_from(reading.notices.len()).unwrap_or(u32::MAX)));
        health.noticed(reading);
    }
}

/// Shows the shards as they were counted.
#[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
pub(crate) fn counted(namespace: &str, shards: &[ShardStatus]) {
    let mut shown: BTreeMap<String, (u64, bool)> = BTreeMap::new();
    for shard in shards {
        let (lag, readable) = shown.entry(label(shard.shard)).or_insert((0, true));
        *lag += shard.lag;
        *readable &= shard.readable;
    }
    for (shard, (lag, readable)) in shown {
        for (name, value) in [
            ("outbox_log_shard_lag", lag as f64),
            ("outbox_log_shard_readable", f64::from(u8::from(readable))),
        ] {
            gauge!(name, "namespace" => namespace.to_owned(), "shard" => shard.clone()).set(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::observed::observe;

    fn reading(shards: Vec<i32>) -> Reading {
        Reading {
            has_company: false,
            shards,
            waiting: Duration::from_secs(12),
            notices: vec!["process 7 has not ended".to_owned()],
        }
    }

    #[test]
    fn what_an_operator_should_know_is_shown_and_makes_no_relay_unready() {
        let health = Health::default();
        let mut shown = ShownShards::new("default");
        let (figures, _) = observe(|| shown.show(reading(vec![3]), &health));
        assert_eq!(figures["outbox_log_generation_waiting_seconds"], 12);
        assert_eq!(
            (figures["outbox_log_shard_read"], figures["outbox_log_notices"]),
            (1, 1)
        );
        let report = health.report();
        assert_eq!(report.notices, ["process 7 has not ended"]);
        assert_eq!(report.shards, [3]);
        assert!(health.is_healthy());
        // One that is another relay's now is shown as such, and no problem is told for ever.
        let (figures, _) = observe(|| shown.show(Reading::default(), &health));
        assert_eq!(figures["outbox_log_shard_read"], 0);
        assert_eq!(figures["outbox_log_notices"], 0);
        assert!(health.report().notices.is_empty());
    }

    #[test]
    fn however_many_shards_there_are_so_many_series_are_shown() {
        let mut shown = ShownShards::new("default");
        observe(|| shown.show(reading((0..1_000).collect()), &Health::default()));
        assert_eq!(shown.read.len(), 129);
        assert_eq!(shown.read["other"], 872);
    }
}
