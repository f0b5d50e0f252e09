-- Dead events as an operator sees them, by their place in the log; of the log itself nothing is read.
--   ?1 topic  ?2 ordering key  ?3 tenant  ?4 ids  ?5 after the event with this id, which may be dead no more  ?6 limit
with start as (
    select log_id, number
    from (
        select -1 as log_id, 0 as number, 0 as choice where ?5 is null
        union all
        select log_id, number, 1 from "@failed" where id = ?5
        union all
        select seq, 0, 2 from "@outbox" where id = ?5
    )
    order by choice
    limit 1
)
select "@f.message", f.created_at as created_at, f.log_id as seq, 'dead' as status, f.attempts, null as max_attempts,
    null as version, f.next_attempt_at, null as locked_by, null as locked_until, f.last_error, f.died_at as updated_at,
    null as delivered_at
from "@failed" f indexed by "@failed+dead"
where f.died_at is not null
    and (?1 is null or f.topic = ?1) and (?2 is null or f.ordering_key = ?2) and (?3 is null or f.tenant = ?3)
    and (?4 is null or f.id in (select value from json_each(?4)))
    and (f.log_id, f.number) > (select log_id, number from start)
order by f.log_id, f.number
limit ?6
