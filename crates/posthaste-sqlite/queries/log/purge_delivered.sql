-- Removes settled rows of the log past their retention, oldest first.
--   ?1 retention in ms  ?2 limit  ?3 up to this row everything is settled
delete from "@outbox"
where seq in (
    select o.seq
    from "@outbox" o
    where o.seq <= ?3
        and o.created_at < cast(unixepoch('subsec') * 1000 as integer) - ?1
        and not exists (select 1 from "@failed" f where f.id = o.id)
    order by o.seq
    limit ?2
)
