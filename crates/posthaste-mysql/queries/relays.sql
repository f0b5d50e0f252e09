-- The relays of a namespace, oldest first.
select
    r.worker, r.namespace, r.publisher, r.host, r.pid, r.version, r.started_at, r.seen_at,
    cast(greatest(timestampdiff(microsecond, r.seen_at, utc_timestamp(6)), 0) as signed) as silent_us,
    r.circuit, r.circuit_since, r.circuit_reason,
    exists (
        select 1 from "@leaders" l
        where l.namespace = r.namespace and l.worker = r.worker and l.until > utc_timestamp(6)
    ) as leads
from "@relays" r
where r.namespace = $1
order by r.started_at, r.worker
