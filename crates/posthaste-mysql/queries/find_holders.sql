-- Who holds the dedupe keys of new rows. Locking, because a plain read may be one of the past.
--   $1 rows
select cast(j.place as signed) as place, d.message_id, d.held_by
from json_table($1, '$[*]' columns (
    place for ordinality, namespace varchar(512) path '$.namespace', topic varchar(512) path '$.topic',
    dedupe_key varchar(512) path '$.dedupe_key'
)) j
straight_join "@dedupe" d on d.namespace = cast(j.namespace as binary) and d.topic = cast(j.topic as binary)
    and d.dedupe_key = cast(j.dedupe_key as binary)
for update
