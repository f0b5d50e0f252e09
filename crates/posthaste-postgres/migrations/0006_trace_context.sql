-- A message that SQL enqueues takes the trace along that the transaction was told of:
--   set local posthaste.traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
-- and posthaste.tracestate and posthaste.baggage likewise. Headers that the call gives come first.
create or replace function "@schema"."enqueue"(
    topic          text,
    payload        text default null,
    key            text default null,
    event_type     text default null,
    aggregate_type text default null,
    aggregate_id   text default null,
    tenant         text default null,
    dedupe_key     text default null,
    headers        jsonb default '{}',
    not_before     timestamptz default null,
    source         text default null,
    content_type   text default 'application/json',
    namespace      text default 'default',
    payload_bytes  bytea default null,
    message_id     uuid default null,
    dedupe_window  interval default '7 days'
) returns table (id uuid, is_new boolean)
language plpgsql volatile
as $posthaste$
#variable_conflict use_column
declare
    -- A UUIDv7: 48 bits of milliseconds in front of a random one.
    new_id  uuid  := coalesce(enqueue.message_id, encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid())
        placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
        from 1 for 6), 52, 1), 53, 1), 'hex')::uuid);
    body    bytea := coalesce(enqueue.payload_bytes, convert_to(enqueue.payload, 'UTF8'));
    held    uuid;
    held_until timestamptz;
    written uuid;
    field   text;
    value   text;
    carried jsonb := enqueue.headers;
    names   text[];
begin
    if (enqueue.payload is null) = (enqueue.payload_bytes is null) then
        raise invalid_parameter_value using message = 'posthaste: give either payload or payload_bytes',
            hint = 'payload takes text, payload_bytes takes bytea.';
    end if;
    for field, value in values
        ('topic', coalesce(enqueue.topic, '')), ('namespace', coalesce(enqueue.namespace, '')),
        ('content_type', coalesce(enqueue.content_type, '')), ('key', enqueue.key), ('tenant', enqueue.tenant),
        ('dedupe_key', enqueue.dedupe_key), ('event_type', enqueue.event_type), ('source', enqueue.source),
        ('aggregate_type', enqueue.aggregate_type), ('aggregate_id', enqueue.aggregate_id)
    loop
        if trim(value) = '' then
            raise invalid_parameter_value using message = format('posthaste: %s is empty', field),
                hint = 'Give it a value, or leave an optional one out.';
        elsif octet_length(value) > 512 then
            raise invalid_parameter_value
                using message = format('posthaste: %s has %s bytes and may have 512', field, octet_length(value)),
                hint = 'Shorten it.';
        end if;
    end loop;
    if octet_length(body) > 1048576 then
        raise invalid_parameter_value
            using message = format('posthaste: payload has %s bytes and may have 1048576', octet_length(body)),
            hint = 'Store large bodies elsewhere and send a reference.';
    end if;
    if jsonb_typeof(enqueue.headers) is distinct from 'object'
        or exists (select from jsonb_each(enqueue.headers) h where jsonb_typeof(h.value) <> 'string'
            or h.key !~ '^[A-Za-z0-9._-]*[A-Za-z0-9][A-Za-z0-9._-]*$') then
        raise invalid_parameter_value using message = 'posthaste: headers must be a JSON object of strings',
            hint = 'Names are letters, digits, ".", "_" and "-".';
    elsif octet_length(enqueue.headers::text) > 16384 then
        raise invalid_parameter_value using message = 'posthaste: headers have more than 16384 bytes',
            hint = 'Shorten them.';
    end if;
    -- A header travels as the attribute of its letters and digits; the envelope's own attributes are not for headers.
    for field, value in
        select h.key, case
            when a.attribute in ('specversion', 'id', 'source', 'type', 'time', 'subject', 'datacontenttype', 'dataschema',
                'data', 'database64', 'partitionkey', 'aggregatetype', 'aggregateid', 'tenant')
                then 'has the name of an envelope attribute'
            when count(*) over (partition by a.attribute) > 1 then 'differs from another header only in case or punctuation'
            when translate(h.value, E'\t', '') ~ '[[:cntrl:]]'
                then 'has a value with a line break or another control character'
        end as problem
        from jsonb_each_text(enqueue.headers) h
        cross join lateral (select lower(translate(h.key, '._-', '')) as attribute) a
        order by problem nulls last, h.key
        limit 1
    loop
        if value is not null then
            raise invalid_parameter_value using message = format('posthaste: headers: %L %s', field, value),
                hint = 'Rename it, remove it, or set the argument of its own.';
        end if;
    end loop;
    -- Headers travel under their letters and digits, so that these are the names that the caller has taken.
    select array_agg(lower(translate(h.name, '._-', ''))) into names
    from jsonb_object_keys(enqueue.headers) h(name);
    names := coalesce(names, '{}');
    for field, value in
        select s.field, s.value
        from (values
            (1, 'traceparent', current_setting('posthaste.traceparent', true), 55),
            (2, 'tracestate', current_setting('posthaste.tracestate', true), 512),
            (3, 'baggage', current_setting('posthaste.baggage', true), 8192)
        ) s(place, field, value, longest)
        -- After a transaction that had one, a setting is empty.
        where s.value <> '' and octet_length(s.value) <= s.longest and s.value !~ '[[:cntrl:]]'
            and not (case s.field when 'baggage' then names && '{baggage}' else names && '{traceparent,tracestate}' end)
        order by s.place
    loop
        -- No message is refused because of its trace: what does not fit is left out, and ids of zeros are none.
        if (field <> 'traceparent' or value ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
                and value !~ '^00-0{32}-|-0{16}-')
            and (field <> 'tracestate' or carried ? 'traceparent')
            and octet_length((carried || jsonb_build_object(field, value))::text) <= 16384 then
            carried := carried || jsonb_build_object(field, value);
        end if;
    end loop;
    if enqueue.tenant is not null and enqueue.dedupe_key is not null
        and not starts_with(enqueue.dedupe_key, enqueue.tenant || '/') then
        raise invalid_parameter_value
            using message = format('posthaste: dedupe_key %L does not begin with %L', enqueue.dedupe_key, enqueue.tenant || '/'),
            hint = 'Prefix it with the tenant of the message.';
    end if;
    if not isfinite(enqueue.not_before) then
        raise invalid_parameter_value using message = 'posthaste: not_before is infinite',
            hint = 'Give the time at which it may be delivered, or enqueue it when it may.';
    end if;
    if enqueue.event_type !~ '^[a-z][a-z0-9-]*\.[a-z][a-z0-9-]*\.[a-z][a-z0-9-]*\.v[1-9][0-9]*$' then
        raise invalid_parameter_value using message = format('posthaste: event_type %L is not a type name', enqueue.event_type),
            hint = 'Write it as {company}.{domain}.{action}.v{n}, e.g. acme.order.created.v1.';
    end if;

    if enqueue.dedupe_key is not null then
        insert into "@dedupe" as d (namespace, topic, dedupe_key, message_id, expires_at)
        values (enqueue.namespace, enqueue.topic, enqueue.dedupe_key, new_id, now() + enqueue.dedupe_window)
        on conflict (namespace, topic, dedupe_key) do update set (message_id, expires_at) = (
            select case when free.yes then excluded.message_id else d.message_id end,
                   case when free.yes then excluded.expires_at else d.expires_at end
            from (select d.expires_at <= now()
                -- A holder that this statement's snapshot does not know is a concurrent one, whose row it does not see either.
                and exists (select from "@dedupe" k where k.namespace = d.namespace and k.topic = d.topic
                    and k.dedupe_key = d.dedupe_key and k.message_id = d.message_id)
                and not exists (select from "@outbox" o where o.id = d.message_id) as yes) free
        )
        returning d.message_id, d.expires_at into held, held_until;
        -- The same event again, after its row was purged, finds its own key held since an earlier time.
        if held <> new_id or held_until <> now() + enqueue.dedupe_window then
            return query values (held, false);
            return;
        end if;
    end if;
    insert into "@outbox" as o (
        id, namespace, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type, aggregate_id,
        content_type, payload, headers, content_hash, next_attempt_at
    ) values (
        new_id, enqueue.namespace, enqueue.topic, enqueue.key, enqueue.tenant, enqueue.dedupe_key, enqueue.event_type,
        enqueue.source, enqueue.aggregate_type, enqueue.aggregate_id, enqueue.content_type, body, carried,
        sha256(convert_to(new_id::text || '|' || coalesce(enqueue.event_type, '') || '|', 'UTF8') || body),
        greatest(now(), enqueue.not_before)
    )
    on conflict (id) do nothing
    returning o.id into written;
    return query values (new_id, written is not null);
end
$posthaste$;
