-- Writes rows in the caller's transaction. A dedupe key that is taken, or an id that exists, writes nothing.
with input as (
    select * from unnest(
        $1::text[]::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::text[], $12::bytea[], $13::text[], $14::bytea[], $15::timestamptz[]
    ) with ordinality as t (
        id, namespace, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type,
        aggregate_id, content_type, payload, headers, content_hash, not_before, place
    )
),
held as (
    -- "do update" rather than "do nothing": it waits for a concurrent holder and returns the winner's id.
    insert into "@dedupe" as d (namespace, topic, dedupe_key, message_id, expires_at)
    select namespace, topic, dedupe_key, id, now() + $16::bigint * interval '1 millisecond'
    from input
    where dedupe_key is not null
    order by namespace, topic, dedupe_key -- one order for all producers, so that they cannot deadlock
    on conflict (namespace, topic, dedupe_key) do update set (message_id, expires_at) = (
        select case when free.yes then excluded.message_id else d.message_id end,
               case when free.yes then excluded.expires_at else d.expires_at end
        from (select d.expires_at <= now()
            -- A holder that this statement's snapshot does not know is a concurrent one, whose row it does not see either.
            and exists (select from "@dedupe" k where k.namespace = d.namespace and k.topic = d.topic
                and k.dedupe_key = d.dedupe_key and k.message_id = d.message_id)
            and not exists (select from "@outbox" o where o."@id" = d.message_id) as yes) free
    )
    returning d.namespace, d.topic, d.dedupe_key, d.message_id,
        -- The same event again, after its row was purged, finds its own key held since an earlier time.
        d.expires_at = now() + $16::bigint * interval '1 millisecond' as held_now
),
written as (
    insert into "@outbox" (
        "@id", "@namespace", "@topic", "@ordering_key", "@tenant", "@dedupe_key", "@event_type", "@source",
        "@aggregate_type", "@aggregate_id", "@content_type", "@payload", "@headers", "@content_hash",
        "@next_attempt_at"
    )
    select
        i.id, i.namespace, i.topic, i.ordering_key, i.tenant, i.dedupe_key, i.event_type, i.source,
        i.aggregate_type, i.aggregate_id, i.content_type, i.payload, i.headers::jsonb, i.content_hash,
        greatest(now(), i.not_before)
    from input i
    left join held h using (namespace, topic, dedupe_key)
    where i.dedupe_key is null or (h.message_id = i.id and h.held_now)
    order by i.place
    on conflict ("@id") do nothing
    returning "@id" as id
)
select i.place, coalesce(h.message_id, i.id)::text as id, w.id is not null as is_new
from input i
left join held h using (namespace, topic, dedupe_key)
left join written w on w.id = i.id
order by i.place
