-- Gives up failed rows that have used all their attempts without a verdict, but for those in flight.
--   ?1 attempts that are allowed  ?2 rows in flight  ?3 why
update "@failed"
set died_at = cast(unixepoch('subsec') * 1000 as integer), last_error = coalesce(last_error, ?3)
where died_at is null and attempts >= ?1 and number not in (select value from json_each(?2))
returning id
