-- Whether there is work, without a lock, so that an idle relay never stands in a writer's way; and what crashed workers
-- left behind: the most attempts among rows that may be tried again, and whether some may not.
--   ?1 namespace  ?2 max attempts  ?3 topics  ?4 tenant
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
select
    exists (
        select 1
        from "@outbox" indexed by "@outbox+fresh"
        where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" <= "@created_at"
            and "@attempts" < ?2
            and (?3 is null or "@topic" in (select value from json_each(?3)))
            and (?4 is null or "@tenant" = ?4)
    ) or exists (
        select 1
        from "@outbox" indexed by "@outbox+waiting"
        where "@namespace" = ?1 and "@status" = '@pending' and "@next_attempt_at" > "@created_at"
            and "@next_attempt_at" <= (select now from clock)
            and "@attempts" < ?2
            and (?3 is null or "@topic" in (select value from json_each(?3)))
            and (?4 is null or "@tenant" = ?4)
    ) as due,
    (
        select max("@attempts:int")
        from "@outbox" indexed by "@outbox+leased"
        where "@namespace" = ?1 and "@status" = '@processing' and "@locked_until" < (select now from clock)
            and "@attempts" < ?2
            and (?3 is null or "@topic" in (select value from json_each(?3)))
            and (?4 is null or "@tenant" = ?4)
    ) as most_tried,
    exists (
        select 1
        from "@outbox" indexed by "@outbox+leased"
        where "@namespace" = ?1 and "@status" = '@processing' and "@locked_until" < (select now from clock)
            and "@attempts" >= ?2
            and (?3 is null or "@topic" in (select value from json_each(?3)))
            and (?4 is null or "@tenant" = ?4)
    ) as exhausted
