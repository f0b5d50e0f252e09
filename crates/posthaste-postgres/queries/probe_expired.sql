-- What vanished workers left behind: the most attempts among rows that may be tried again, and how many may not.
select
    max("@attempts") filter (where "@attempts" < $2) as most_tried,
    count(*) filter (where "@attempts" >= $2) as exhausted
from "@outbox"
where "@namespace" = $1
    and "@status" = '@processing'
    and "@locked_until" < now()
    and ($3::text[] is null or "@topic" = any ($3))
    and ($4::text is null or "@tenant" = $4)
