insert into plain (event_id, event_type, source, aggregate_type, aggregate_id, payload)
select id::text, $4, $5, $6, key, convert_from(payload, 'UTF8')::jsonb
from unnest($1::uuid[], $3::text[], $7::bytea[]) as t (id, key, payload)
where $2::text is not null
