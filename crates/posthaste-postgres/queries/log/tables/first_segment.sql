-- The first segment that may have rows which are not settled. Where there are many, plans are made for those that are read: a
-- plan for all of them takes seconds to make, and locks each of them whenever it is used.
select coalesce(min(s.segment) filter (where s.settled_at is null), 0) as first,
    set_config('plan_cache_mode', case when count(*) > 16 then 'force_custom_plan' else 'auto' end, $1) as plans
from "@schema".log_segments s
where s.dropped_at is null
