-- Appends rows in the caller's transaction, where some have dedupe keys or wait for a time of their own. A key that is taken
-- writes nothing. What waits goes to where failures wait, with a number of its shard, which is its place in its lane.
with input as (
    select * from unnest(
        $1::text[]::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::bytea[], $11::text[], $12::text[], $13::timestamptz[]
    ) with ordinality as t (
        id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload, headers,
        dedupe_key, not_before, place
    )
),
held as (
    -- "do update" rather than "do nothing": it waits for a concurrent holder and returns the winner's id.
    insert into "@dedupe" as d (namespace, topic, dedupe_key, message_id, expires_at)
    select 'default', topic, dedupe_key, id, now() + $14::bigint * interval '1 millisecond'
    from input
    where dedupe_key is not null
    order by topic, dedupe_key -- one order for all producers, so that they cannot deadlock
    on conflict (namespace, topic, dedupe_key) do update set (message_id, expires_at) = (
        select case when free.yes then excluded.message_id else d.message_id end,
               case when free.yes then excluded.expires_at
                   -- One that this transaction has taken before must not look as if it were taken now.
                   when d.expires_at = excluded.expires_at then d.expires_at - interval '1 microsecond'
                   else d.expires_at end
        from (select d.expires_at <= now()
            -- A holder that this statement's snapshot does not know is a concurrent one.
            and exists (select from "@dedupe" k where k.namespace = d.namespace and k.topic = d.topic
                and k.dedupe_key = d.dedupe_key and k.message_id = d.message_id)
            -- What waits still has its key; a delivered row is not looked for, since nothing finds it by its id.
            and not exists (select from "@failed" f where "@f.failed/event_id" = d.message_id) as yes) free
    )
    returning d.topic, d.dedupe_key, d.message_id,
        -- The same event again finds its own key held since an earlier time.
        d.expires_at = now() + $14::bigint * interval '1 millisecond' as held_now
),
chosen as materialized (
    select n.*, case n.shape
            when 1 then nextval('@schema.log_shard_0_seq'::regclass)
            else nextval(('@schema.log_shard_' || n.shard || '_seq')::regclass)
        end as seq
    from (
        select i.*, shape, (shape >> 16)::integer
            + (('x' || left(md5(coalesce(i.ordering_key, i.id::text)), 8))::bit(32)::integer & 2147483647)
                % (shape & 65535)::integer as shard
        from pg_sequence_last_value('@schema.log_shape'::regclass) as shape, input i
        left join held h using (topic, dedupe_key)
        where i.dedupe_key is null or (h.message_id = i.id and h.held_now)
        order by i.place
        offset 0 -- the numbers are taken after the rows are in order
    ) n
),
appended as (
    insert into "@outbox" (
        shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload,
        headers
    )
    select shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type, payload,
        convert_to(headers, 'UTF8')
    from chosen
    where not_before is null or not_before <= now()
),
waiting as (
    insert into "@failed" (
        shard, log_id, event_id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type,
        payload, headers, next_attempt_at
    )
    select shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type,
        payload, convert_to(headers, 'UTF8'), not_before
    from chosen
    where not_before > now()
)
select i.place, coalesce(h.message_id, i.id)::text as id,
    i.dedupe_key is null or (h.message_id = i.id and h.held_now) as is_new
from input i
left join held h using (topic, dedupe_key)
order by i.place
