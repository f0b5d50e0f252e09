//! What people call the columns of an outbox.

use crate::table::{LiveColumn, LiveTable, Role};

/// Roles and the names by which they are known, the most telling first, without regard to case and underscores. Earlier
/// roles choose first.
pub(super) const NAMES: [(Role, &[&str]); 27] = [
    (Role::Status, &["status", "state", "outboxstatus", "eventstatus"]),
    (
        Role::Payload,
        &["payload", "body", "data", "content", "eventdata", "message", "event"],
    ),
    (
        Role::EventId,
        &["eventid", "messageid", "requestid", "eventuuid", "uuid"],
    ),
    (Role::Seq, &["seq", "sequence", "sequenceno", "sequencenumber"]),
    (Role::Namespace, &["namespace"]),
    (Role::Topic, &["topic", "destination", "channel", "queue"]),
    (
        Role::OrderingKey,
        &["orderingkey", "partitionkey", "messagekey", "routingkey", "key"],
    ),
    (Role::Tenant, &["tenantid", "tenant"]),
    (
        Role::DedupeKey,
        &["dedupekey", "deduplicationkey", "dedupkey", "idempotencykey"],
    ),
    (Role::EventType, &["eventtype", "eventname", "messagetype", "type"]),
    (Role::Source, &["source", "producer", "service"]),
    (Role::AggregateType, &["aggregatetype", "entitytype", "aggregate"]),
    (Role::AggregateId, &["aggregateid", "entityid"]),
    (Role::ContentType, &["contenttype", "mediatype"]),
    (Role::Headers, &["headers", "metadata", "attributes"]),
    (Role::ContentHash, &["contenthash", "payloadhash", "checksum", "hash"]),
    (Role::MaxAttempts, &["maxattempts", "maxretries", "maxtries"]),
    (
        Role::Attempts,
        &["attempts", "attemptcount", "attempt", "tries", "retrycount", "retries"],
    ),
    (
        Role::NextAttemptAt,
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
        Role::LockedBy,
        &["lockedby", "lockowner", "claimedby", "leasedby", "owner", "workerid"],
    ),
    (Role::LeaseToken, &["leasetoken", "locktoken", "claimtoken"]),
    (
        Role::LockedUntil,
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
        Role::LockedAt,
        &["lockedat", "claimedat", "leasedat", "pickedat", "processingstartedat"],
    ),
    (
        Role::LastError,
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
        Role::CreatedAt,
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
    (Role::UpdatedAt, &["updatedat", "modifiedat", "updatedon", "updated"]),
    (
        Role::DeliveredAt,
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
