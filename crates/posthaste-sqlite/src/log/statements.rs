//! The finished SQL of every statement over a log.

use posthaste_sql::TableMap;
use posthaste_sql::template::TemplateError;

use crate::statements::Statement;

posthaste_sql::statements! {
    Statement in "../../queries/log/";
    /// For producers.
    writing: Writing => { enqueue, schedule, hold_keys, find_holders }
    /// For the reader of the log.
    reading: Reading => {
        reader, take_reader, renew_reader, checkpoint, release_reader, fence, read, sequence,
        raise_sequence, make_sequence,
    }
    /// For what was not delivered at first.
    failures: Failures => { retry, suspected, fail, missing, retried, delete_delivered, left, sweep }
    /// For its upkeep.
    upkeep: Upkeep => {
        stats, topic_gauges, list, list_dead, exists, replay, discard, discard_rows, restore, find_old, purge_delivered,
        purge_dead, purge_dedupe, purgeable, trial_checkpoint, trial_failed, trial_rows,
    }
}

impl Statements {
    pub(crate) fn finish(map: &TableMap) -> Result<Self, TemplateError> {
        Self::render(map, Statement::finish)
    }
}
