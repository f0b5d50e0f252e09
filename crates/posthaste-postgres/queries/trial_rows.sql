-- Locks some open rows, on which verdicts are tried before all is rolled back.
--   $1 how many
select "@o.id:text" as id
from "@outbox" o
where "@o.status" in ('@open')
    -- One that has used up its attempts is not claimed, and its table may refuse one more.
    /*if attempts*/ and coalesce("@o.attempts", 0) = 0 /*end*/
    -- Those that have an index of their own.
    /*if split_index*/ and "@o.next_attempt_at" <= "@o.created_at" /*end*/
limit $1
for update skip locked
