-- Says that a relay is there. Its first heartbeat is its start.
insert into "@relays" (
    worker, namespace, publisher, host, pid, version, started_at, seen_at, circuit, circuit_since, circuit_reason
) values (
    $1, $2, $3, $4, $5, $6, utc_timestamp(6), utc_timestamp(6), $7,
    timestampadd(microsecond, -1000 * $8, utc_timestamp(6)), $9
)
on duplicate key update
    namespace = values(namespace), publisher = values(publisher), host = values(host), pid = values(pid),
    version = values(version), seen_at = values(seen_at), circuit = values(circuit),
    circuit_since = values(circuit_since), circuit_reason = values(circuit_reason)
