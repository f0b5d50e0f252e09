-- Who leads, other than the one who asks; a look before the leap, so that relays that stand by do not write.
select worker, timestampdiff(microsecond, utc_timestamp(6), until) div 1000 as left_ms
from "@leaders"
where namespace = $1 and worker <> $2 and until > utc_timestamp(6)
