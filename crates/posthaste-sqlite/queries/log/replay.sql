-- Makes dead rows pending again, with a fresh count of attempts.
--   ?1 topic  ?2 ordering key  ?3 tenant  ?4 ids  ?5 limit
update "@failed"
set attempts = 0, next_attempt_at = cast(unixepoch('subsec') * 1000 as integer), last_error = null, died_at = null
where number in (
    select number
    from "@failed"
    where died_at is not null and (?1 is null or topic = ?1) and (?2 is null or ordering_key = ?2)
        and (?3 is null or tenant = ?3) and (?4 is null or id in (select value from json_each(?4)))
    order by log_id, number
    limit ?5
)
returning id, log_id, number
