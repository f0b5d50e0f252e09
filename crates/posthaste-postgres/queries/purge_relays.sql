-- Forgets relays that were not heard for long: they died without leaving.
delete from "@relays" where worker in (
    select worker from "@relays" where seen_at < now() - $1::bigint * interval '1 millisecond' order by seen_at limit $2
)
