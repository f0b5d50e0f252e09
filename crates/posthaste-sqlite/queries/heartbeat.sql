-- Says that a relay is there. Its first heartbeat is its start.
--   ?1 worker  ?2 namespace  ?3 publisher  ?4 host  ?5 pid  ?6 version  ?7 circuit  ?8 for how long in ms  ?9 reason
with clock as (select cast(unixepoch('subsec') * 1000 as integer) as now)
insert into "@relays" (
    worker, namespace, publisher, host, pid, version, started_at, seen_at, circuit, circuit_since, circuit_reason
)
select ?1, ?2, ?3, ?4, ?5, ?6, now, now, ?7, now - ?8, ?9 from clock where true
on conflict (worker) do update set
    namespace = excluded.namespace, publisher = excluded.publisher, host = excluded.host, pid = excluded.pid,
    version = excluded.version, seen_at = excluded.seen_at, circuit = excluded.circuit,
    circuit_since = excluded.circuit_since, circuit_reason = excluded.circuit_reason
