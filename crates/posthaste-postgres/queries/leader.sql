-- Who leads, other than the one who asks; a look before the leap, so that relays that stand by do not write.
select worker, (extract(epoch from until - now()) * 1000)::bigint as left_ms
from "@leaders"
where namespace = $1 and worker <> $2 and until > now()
