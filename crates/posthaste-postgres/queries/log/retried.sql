-- A retry failed: it is counted unless the broker is unavailable, and waits again; one that is given up stays at the
-- threshold.
--   $1 ids  $2 whether they are given up  $3 attempts to count  $4 waits in ms  $5 errors
--   $6 retries after which a row is given up
update "@failed" f
set "@failed/attempts" =
        /*if failed/died_at*/ "@f.failed/attempts" + s.attempts,
        "@failed/died_at" = /*as failed/died_at*/ case when s.dead and $6::bigint is not null then now() end /*end*/,
        /*else*/ greatest("@f.failed/attempts" + s.attempts, case when s.dead then $6::bigint end), /*end*/
    "@failed/next_attempt_at" = case when s.delay_ms is null then "@f.failed/next_attempt_at"
        else /*as failed/next_attempt_at*/ now() + s.delay_ms * interval '1 millisecond' /*end*/ end
    /*if failed/last_error*/ , "@failed/last_error" = s.error /*end*/
from unnest($1::bigint[], $2::bool[], $3::bigint[], $4::bigint[], $5::text[]) as s (id, dead, attempts, delay_ms, error)
-- Locks of other transactions are not waited for: a condition without columns comes before the first row.
where (select set_config('lock_timeout', '100ms', true)) is not null and "@f.failed/id" = s.id
