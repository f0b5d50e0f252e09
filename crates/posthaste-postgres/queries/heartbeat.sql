-- Says that a relay is there. Its first heartbeat is its start. Relays that died without leaving are forgotten after a
-- while.
with forgotten as (
    delete from "@relays" where worker <> $1 and seen_at < now() - $10::bigint * interval '1 millisecond'
)
insert into "@relays" as r (
    worker, namespace, publisher, host, pid, version, started_at, seen_at, circuit, circuit_since, circuit_reason
) values ($1, $2, $3, $4, $5, $6, now(), now(), $7, now() - $8::bigint * interval '1 millisecond', $9)
on conflict (worker) do update set
    namespace = excluded.namespace, publisher = excluded.publisher, host = excluded.host, pid = excluded.pid,
    version = excluded.version, seen_at = excluded.seen_at, circuit = excluded.circuit,
    circuit_since = excluded.circuit_since, circuit_reason = excluded.circuit_reason
