-- The relays of a namespace, oldest first.
select
    r.worker, r.namespace, r.publisher, r.host, r.pid, r.version, r.started_at, r.seen_at,
    greatest(extract(epoch from now() - r.seen_at), 0)::float8 as silent_seconds,
    r.circuit, r.circuit_since, r.circuit_reason,
    exists (
        select from "@leaders" l where l.namespace = r.namespace and l.worker = r.worker and l.until > now()
    ) as leads
from "@relays" r
where r.namespace = $1
order by r.started_at, r.worker
