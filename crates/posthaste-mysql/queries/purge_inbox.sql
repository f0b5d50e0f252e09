-- Forgets what one consumer handled longer ago than the broker can deliver again.
delete from "@inbox"
where consumer = $1 and handled_at < timestampadd(microsecond, -1000 * $2, utc_timestamp(6))
order by handled_at
limit $3
