-- Forgets relays that died without leaving.
delete from "@relays" where worker <> $1 and seen_at < timestampadd(microsecond, -1000 * $2, utc_timestamp(6))
