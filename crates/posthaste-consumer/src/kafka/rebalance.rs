//! What happens when the group shares out its partitions.

use std::sync::Arc;

use rdkafka::topic_partition_list::TopicPartitionList;

use super::context::{Client, ClientListener};
use super::offsets;
use super::partitions::Partitions;
use super::unsettled::Unsettled;
use crate::source::Lane;
use crate::upkeep::instrument;

pub(super) struct Rebalancing {
    pub(super) partitions: Arc<Partitions>,
    /// Nothing if the client finds out by itself where a group without an offset begins.
    pub(super) unsettled: Option<Arc<Unsettled>>,
}

impl ClientListener for Rebalancing {
    fn before_assign(&self, client: &Client, partitions: &TopicPartitionList) {
        let known = if let Some(unsettled) = &self.unsettled {
            let settled = unsettled.assign(client, partitions);
            self.partitions.assign(&settled);
            Some(settled)
        } else {
            let known = offsets::committed(client, partitions);
            self.partitions.assign(partitions);
            known.ok()
        };
        if let Some(known) = known {
            self.partitions.report_loss(known);
        }
    }

    fn after_assign(&self, client: &Client, partitions: &TopicPartitionList) {
        if let Some(unsettled) = &self.unsettled {
            unsettled.pause(client, partitions);
        }
    }

    fn before_revoke(&self, client: &Client, partitions: &TopicPartitionList) {
        if let Some(unsettled) = &self.unsettled {
            unsettled.revoke(client, partitions);
        }
        self.partitions.revoke(client, partitions);
    }

    fn lag(&self, lane: &Lane, records: i64) {
        if self.partitions.holds(lane) {
            instrument::lag(lane, records);
        }
    }
}
