-- A retry failed: it is counted unless the broker is away, and waits again; one that is given up stays at the threshold.
--   $1 ids  $2 verdicts  $3 waits in ms  $4 errors  $5 retries after which a row is given up
update "@failed" f
set "@failed/attempts" = case s.verdict
        when 'dead' then greatest("@f.failed/attempts" + 1, $5::bigint)
        when 'retry' then "@f.failed/attempts" + 1
        else "@f.failed/attempts" end,
    "@failed/next_attempt_at" = /*as failed/next_attempt_at*/ now() + s.delay_ms * interval '1 millisecond' /*end*/
    /*if failed/last_error*/ , "@failed/last_error" = s.error /*end*/
from unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[]) as s (id, verdict, delay_ms, error)
-- Whoever has locked a row is not waited for: a condition without columns comes before the first row.
where (select set_config('lock_timeout', '100ms', true)) is not null and "@f.failed/id" = s.id
