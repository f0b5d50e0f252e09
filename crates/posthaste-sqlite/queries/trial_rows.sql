-- Some open rows, on which verdicts are tried before all is rolled back.
--   ?1 how many
select "@o.id:text" as id
from "@outbox" o indexed by "@outbox+fresh"
where
    -- Those that have an index of their own.
    /*if split_index*/ "@o.status" = '@pending' and "@o.next_attempt_at" <= "@o.created_at"
    /*else*/ "@o.status" in ('@open') /*end*/
limit ?1
