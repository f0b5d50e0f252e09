-- Holds the dedupe keys of new rows, in one order for all producers, so that they cannot deadlock. A key that is taken
-- stays with its holder; another one that asks for it waits until the holder's transaction is over.
--   $1 rows  $2 who holds them now  $3 window in ms
insert into "@dedupe" (namespace, topic, dedupe_key, message_id, held_by, expires_at)
select j.namespace, j.topic, j.dedupe_key, j.id, $2, timestampadd(microsecond, $3 * 1000, utc_timestamp(6))
from json_table($1, '$[*]' columns (
    id char(36) path '$.id', namespace varchar(512) path '$.namespace', topic varchar(512) path '$.topic',
    dedupe_key varchar(512) path '$.dedupe_key'
)) j
where j.dedupe_key is not null
order by j.namespace, j.topic, j.dedupe_key
on duplicate key update held_by = "@dedupe".held_by
