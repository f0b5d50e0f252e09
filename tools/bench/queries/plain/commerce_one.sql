insert into plain (event_id, event_type, source, aggregate_type, aggregate_id, payload)
select $1::text, $4, $5, $6, $3, convert_from($7, 'UTF8')::jsonb where $2::text is not null
