//! What people call the columns of an outbox.

use crate::table::{LiveColumn, LiveTable};

/// Roles and the names by which they are known, the most telling first, without regard to case and underscores. Earlier
/// roles choose first.
pub(super) const NAMES: [(&str, &[&str]); 27] = [
    ("status", &["status", "state", "outboxstatus", "eventstatus"]),
    (
        "payload",
        &["payload", "body", "data", "content", "eventdata", "message", "event"],
    ),
    ("event_id", &["eventid", "messageid", "requestid", "eventuuid", "uuid"]),
    ("seq", &["seq", "sequence", "sequenceno", "sequencenumber"]),
    ("namespace", &["namespace"]),
    ("topic", &["topic", "destination", "channel", "queue"]),
    (
        "ordering_key",
        &["orderingkey", "partitionkey", "messagekey", "routingkey", "key"],
    ),
    ("tenant", &["tenantid", "tenant"]),
    (
        "dedupe_key",
        &["dedupekey", "deduplicationkey", "dedupkey", "idempotencykey"],
    ),
    ("event_type", &["eventtype", "eventname", "messagetype", "type"]),
    ("source", &["source", "producer", "service"]),
    ("aggregate_type", &["aggregatetype", "entitytype", "aggregate"]),
    ("aggregate_id", &["aggregateid", "entityid"]),
    ("content_type", &["contenttype", "mediatype"]),
    ("headers", &["headers", "metadata", "attributes"]),
    ("content_hash", &["contenthash", "payloadhash", "checksum", "hash"]),
    ("max_attempts", &["maxattempts", "maxretries", "maxtries"]),
    (
        "attempts",
        &["attempts", "attemptcount", "attempt", "tries", "retrycount", "retries"],
    ),
    (
        "next_attempt_at",
        &[
            "nextattemptat",
            "nextretryat",
            "availableat",
            "scheduledat",
            "visibleat",
            "dueat",
            "runat",
            "notbefore",
        ],
    ),
    (
        "locked_by",
        &["lockedby", "lockowner", "claimedby", "leasedby", "owner", "workerid"],
    ),
    ("lease_token", &["leasetoken", "locktoken", "claimtoken"]),
    (
        "locked_until",
        &[
            "lockeduntil",
            "leaseduntil",
            "claimeduntil",
            "leaseuntil",
            "leaseexpiresat",
            "lockexpiresat",
        ],
    ),
    (
        "locked_at",
        &["lockedat", "claimedat", "leasedat", "pickedat", "processingstartedat"],
    ),
    (
        "last_error",
        &[
            "lasterror",
            "errormessage",
            "lasterrormessage",
            "failurereason",
            "error",
            "reason",
        ],
    ),
    (
        "created_at",
        &[
            "createdat",
            "occurredat",
            "occurredon",
            "insertedat",
            "enqueuedat",
            "createdon",
            "created",
            "timestamp",
        ],
    ),
    ("updated_at", &["updatedat", "modifiedat", "updatedon", "updated"]),
    (
        "delivered_at",
        &[
            "deliveredat",
            "sentat",
            "publishedat",
            "processedat",
            "dispatchedat",
            "completedat",
            "processedon",
        ],
    ),
];

/// Columns that look like the role `version`. It is never proposed: mostly they hold the aggregate's or the schema's version,
/// which the relay must not change.
pub(super) const VERSION: &[&str] = &["version", "rowversion", "optlock"];

/// The column that is known by one of these names and not taken.
pub(super) fn find<'a>(table: &'a LiveTable, names: &[&str], taken: &[&str]) -> Option<&'a LiveColumn> {
    names.iter().find_map(|name| {
        table
            .columns
            .iter()
            .find(|column| !taken.contains(&column.name.as_str()) && plain(&column.name) == **name)
    })
}

/// A name without case and without what separates its words.
pub(super) fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}
