-- Locks some open rows of a scope, on which verdicts are tried before all is rolled back.
--   $1 how many  $2 namespace  $3 topics  $4 tenant
select "@o.id:text" as id
from "@outbox" o
where "@o.status" in ('@open')
    -- One that has used up its attempts is not claimed, and its table may refuse one more.
    /*if attempts*/ and coalesce("@o.attempts", 0) = 0 /*end*/
    -- Those that have an index of their own.
    /*if split_index*/ and "@o.next_attempt_at" <= "@o.created_at" /*end*/
    and /*if namespace*/ "@o.namespace:text" = $2 /*else*/ $2::text is not null /*end*/
    and /*if topic*/ ($3::text[] is null or "@o.topic:text" = any ($3)) /*else*/ $3::text[] is null /*end*/
    and /*if tenant*/ ($4::text is null or "@o.tenant:text" = $4) /*else*/ $4::text is null /*end*/
-- By that index, and not past all that was delivered until some are found.
/*if split_index*/ order by "@o.seq" /*end*/
limit $1
for update skip locked
