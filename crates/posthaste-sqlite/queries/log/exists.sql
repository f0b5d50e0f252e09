-- Whether an event is there.
--   ?1 its id
select exists (select 1 from "@failed" where id = ?1) or exists (select 1 from "@outbox" where id = ?1)
