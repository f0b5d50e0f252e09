-- What vanished workers left behind: the most attempts among rows that may be tried again, and how many may not.
-- It also prepares the transaction for the claim: room for the sets of blocked keys, which would otherwise be searched row
-- by row, and no just-in-time compilation, which costs more than the claim and is chosen for its unlucky estimates.
select
    max("@attempts") filter (where "@attempts" < $2) as most_tried,
    count(*) filter (where "@attempts" >= $2) as exhausted,
    set_config('work_mem', '64MB', true),
    set_config('jit', 'off', true)
from "@outbox"
where "@namespace" = $1
    and "@status" = '@processing'
    and "@locked_until" < now()
    and ($3::text[] is null or "@topic" = any ($3))
    and ($4::text is null or "@tenant" = $4)
