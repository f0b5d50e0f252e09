//! Rows that the database refuses to hand out, and verdicts that it does not take.

use metrics::counter;
use posthaste_core::MessageId;
use posthaste_core::publisher::Outcome;
use posthaste_core::store::RefusedRow;

use crate::reported::Reported;

/// So many of one round are told one by one.
const MAX_TOLD: usize = 10;

/// The database refused to have rows claimed, each told for the first time.
pub(crate) fn unclaimable(namespace: &str, refused: &[&RefusedRow]) {
    refused_rows(
        namespace,
        refused,
        "the database refused to have this message claimed: it is not delivered, and messages of its key wait; look for a \
         constraint that its row does not meet, or for a trigger on the outbox, and correct or remove the row; it is tried \
         again every minute",
    );
}

/// The database refused to have rows taken back whose workers crashed, each told for the first time.
pub(crate) fn unrecoverable(namespace: &str, refused: &[&RefusedRow]) {
    refused_rows(
        namespace,
        refused,
        "the database refused to take this message back from a worker that crashed: it is not delivered, and messages of \
         its key wait; look for a constraint that its row does not meet, or for a trigger on the outbox, and correct or \
         remove the row",
    );
}

fn refused_rows(namespace: &str, refused: &[&RefusedRow], what: &str) {
    for RefusedRow { id, error } in refused.iter().copied().take(MAX_TOLD) {
        tracing::error!(namespace, %id, error, "{what}");
    }
    if let Some(more) = refused.len().checked_sub(MAX_TOLD).filter(|more| *more > 0) {
        tracing::error!(namespace, more, "and so it did for {more} more messages");
    }
    if !refused.is_empty() {
        counter!("outbox_claim_refused_count", "namespace" => namespace.to_owned()).increment(refused.len() as u64);
    }
}

/// Messages whose claim was refused have been claimed.
pub(crate) fn claimed_after_all(ids: &[MessageId]) {
    for id in ids {
        tracing::info!(%id, "the database has taken the claim that it had refused");
    }
}

/// The database refused to write verdicts, each told for the first time.
pub(crate) fn refused(namespace: &str, refused: &[(Reported, String)]) {
    for (Reported { message, outcome, .. }, error) in refused.iter().take(MAX_TOLD) {
        let fate = match outcome {
            Outcome::Delivered(_) => "it was published, and this relay does not publish it again".to_owned(),
            Outcome::NotAttempted => "it was not published".to_owned(),
            Outcome::Corrupt { error } => format!("it was not published ({error})"),
            Outcome::Failed(error) => format!("its publication failed ({error})"),
        };
        tracing::error!(
            namespace, id = %message.id, topic = message.topic.as_str(), key = message.key.as_deref(), trace_id = message.trace_id.as_deref(), error,
            "the database refused to write what became of this message: {fate}; look for a constraint, a trigger or a \
             missing grant on the outbox and its dead-letter table; it is tried again every minute, and until then \
             messages of its key wait"
        );
    }
    if let Some(more) = refused.len().checked_sub(MAX_TOLD).filter(|more| *more > 0) {
        tracing::error!(namespace, more, "and so it did for {more} more messages");
    }
    if !refused.is_empty() {
        counter!("outbox_verdict_refused_count", "namespace" => namespace.to_owned()).increment(refused.len() as u64);
    }
}

/// Locks of other transactions keep verdicts from being written, each told once.
pub(crate) fn busy(namespace: &str, busy: &[(Reported, String)]) {
    for (Reported { message, .. }, holder) in busy.iter().take(MAX_TOLD) {
        tracing::warn!(
            namespace, id = %message.id, topic = message.topic.as_str(), key = message.key.as_deref(), trace_id = message.trace_id.as_deref(), holder,
            "another transaction has locked the row of this message, so what became of it cannot be written; it is tried \
             again every two seconds, and until then messages of its key wait; if it lasts, end that transaction"
        );
    }
    if let Some(more) = busy.len().checked_sub(MAX_TOLD).filter(|more| *more > 0) {
        tracing::warn!(namespace, more, "and so it has for {more} more messages");
    }
}

/// A verdict that could not be written has been.
pub(crate) fn taken_after_all(Reported { message, .. }: &Reported) {
    tracing::info!(
        id = %message.id, topic = message.topic.as_str(), key = message.key.as_deref(), trace_id = message.trace_id.as_deref(),
        "the database has taken the verdict that could not be written before"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::observe;

    /// Proves pitfall 19.
    #[test]
    fn a_refused_claim_is_an_error_with_row_cause_and_remedy() {
        let row = RefusedRow {
            id: MessageId::new(),
            error: "violates check constraint".to_owned(),
        };
        let (counted, log) = observe(|| unclaimable("default", &[&row; 12]));
        assert_eq!(counted["outbox_claim_refused_count"], 12);
        let told = [
            &row.id.to_string(),
            &row.error,
            "a constraint that its row",
            "2 more messages",
        ];
        assert!(
            told.iter().all(|part| log.contains(*part)) && log.contains("ERROR"),
            "{log}"
        );
        let (counted, log) = observe(|| unclaimable("default", &[]));
        assert_eq!((counted.len(), log.as_str()), (0, ""));
    }
}
