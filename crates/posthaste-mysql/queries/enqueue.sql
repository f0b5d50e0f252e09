-- Writes rows in the caller's transaction.
--   $1 rows  $2 their payloads, one after another
insert into "@outbox" (
    "@id", "@namespace", "@topic", "@ordering_key", "@tenant", "@dedupe_key", "@event_type", "@source",
    "@aggregate_type", "@aggregate_id", "@content_type", "@payload", "@headers", "@content_hash", "@status",
    "@attempts", "@next_attempt_at", "@created_at", "@updated_at"
)
select
    j.id, j.namespace, j.topic, j.ordering_key, j.tenant, j.dedupe_key, j.event_type, j.source, j.aggregate_type,
    j.aggregate_id, j.content_type, substring($2, j.start, j.bytes), j.headers, unhex(j.hash), '@pending', 0,
    greatest(utc_timestamp(6), coalesce(
        timestampadd(microsecond, j.not_before, cast('1970-01-01' as datetime(6))), utc_timestamp(6)
    )),
    utc_timestamp(6), utc_timestamp(6)
from json_table($1, '$[*]' columns (
    place for ordinality, id char(36) path '$.id', namespace varchar(512) path '$.namespace',
    topic varchar(512) path '$.topic', ordering_key varchar(512) path '$.ordering_key',
    tenant varchar(512) path '$.tenant', dedupe_key varchar(512) path '$.dedupe_key',
    event_type varchar(512) path '$.event_type', source varchar(512) path '$.source',
    aggregate_type varchar(512) path '$.aggregate_type', aggregate_id varchar(512) path '$.aggregate_id',
    content_type varchar(512) path '$.content_type', headers longtext path '$.headers', hash char(64) path '$.hash',
    not_before bigint path '$.not_before', start bigint path '$.start', bytes bigint path '$.bytes'
)) j
order by j.place
