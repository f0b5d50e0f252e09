-- The relays of a namespace, oldest first.
--   ?1 namespace
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
select
    r.worker, r.namespace, r.publisher, r.host, r.pid, r.version, r.started_at, r.seen_at,
    max(clock.now - r.seen_at, 0) as silent_ms, r.circuit, r.circuit_since, r.circuit_reason,
    exists (
        select 1 from "@leaders" l where l.namespace = r.namespace and l.worker = r.worker and l.until > clock.now
    ) as leads
from "@relays" r, clock
where r.namespace = ?1
order by r.started_at, r.worker
