-- Begins dead rows again at their old place in the order. Guarded: a row that is no longer dead is left alone.
with chosen as materialized (
    select "@id" as id
    from "@outbox"
    where "@status" = '@dead'
        and ($1::text is null or "@namespace" = $1)
        and ($2::text is null or "@topic" = $2)
        and ($3::text is null or "@ordering_key" = $3)
        and ($4::text is null or "@tenant" = $4)
        and ($5::uuid[] is null or "@id" = any ($5))
    order by "@seq"
    limit $6
    for update skip locked
)
update "@outbox"
set "@status" = '@pending', "@attempts" = 0, "@updated_at" = now(),
    -- Due at once, but waiting by kind: followers that wait already must not overtake it.
    "@next_attempt_at" = greatest(now(), "@created_at" + interval '1 microsecond')
where "@id" = any (array(select id from chosen))
returning "@id" as id
