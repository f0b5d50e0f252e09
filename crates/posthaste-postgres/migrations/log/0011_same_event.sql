-- The same event twice in one transaction was appended twice: its dedupe key was held until the very moment until which it would be held
-- if it had been taken only now.

-- Enqueueing from any language, with the arguments of the queue's "enqueue".
create or replace function "@schema".log_enqueue(
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
    new_id  uuid  := coalesce(log_enqueue.message_id, encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid())
        placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
        from 1 for 6), 52, 1), 53, 1), 'hex')::uuid);
    body    bytea := coalesce(log_enqueue.payload_bytes, convert_to(log_enqueue.payload, 'UTF8'));
    held    uuid;
    held_until timestamptz;
    shape   bigint;
    place   integer;
    number  bigint;
    field   text;
    value   text;
    carried jsonb := log_enqueue.headers;
    names   text[];
begin
    if (log_enqueue.payload is null) = (log_enqueue.payload_bytes is null) then
        raise invalid_parameter_value using message = 'posthaste: give either payload or payload_bytes',
            hint = 'payload takes text, payload_bytes takes bytea.';
    end if;
    for field, value in values
        ('topic', coalesce(log_enqueue.topic, '')), ('namespace', coalesce(log_enqueue.namespace, '')),
        ('content_type', coalesce(log_enqueue.content_type, '')), ('key', log_enqueue.key), ('tenant', log_enqueue.tenant),
        ('dedupe_key', log_enqueue.dedupe_key), ('event_type', log_enqueue.event_type), ('source', log_enqueue.source),
        ('aggregate_type', log_enqueue.aggregate_type), ('aggregate_id', log_enqueue.aggregate_id)
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
    if jsonb_typeof(log_enqueue.headers) is distinct from 'object'
        or exists (select from jsonb_each(log_enqueue.headers) h where jsonb_typeof(h.value) <> 'string'
            or h.key !~ '^[A-Za-z0-9._-]*[A-Za-z0-9][A-Za-z0-9._-]*$') then
        raise invalid_parameter_value using message = 'posthaste: headers must be a JSON object of strings',
            hint = 'Names are letters, digits, ".", "_" and "-".';
    elsif octet_length(log_enqueue.headers::text) > 16384 then
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
        from jsonb_each_text(log_enqueue.headers) h
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
    from jsonb_object_keys(log_enqueue.headers) h(name);
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
    if log_enqueue.tenant is not null and log_enqueue.dedupe_key is not null
        and not starts_with(log_enqueue.dedupe_key, log_enqueue.tenant || '/') then
        raise invalid_parameter_value
            using message = format('posthaste: dedupe_key %L does not begin with %L', log_enqueue.dedupe_key, log_enqueue.tenant || '/'),
            hint = 'Prefix it with the tenant of the message.';
    end if;
    if not isfinite(log_enqueue.not_before) then
        raise invalid_parameter_value using message = 'posthaste: not_before is infinite',
            hint = 'Give the time at which it may be delivered, or enqueue it when it may.';
    end if;
    if log_enqueue.event_type !~ '^[a-z][a-z0-9-]*\.[a-z][a-z0-9-]*\.[a-z][a-z0-9-]*\.v[1-9][0-9]*$' then
        raise invalid_parameter_value using message = format('posthaste: event_type %L is not a type name', log_enqueue.event_type),
            hint = 'Write it as {company}.{domain}.{action}.v{n}, e.g. acme.order.created.v1.';
    end if;

    if log_enqueue.namespace <> 'default' then
        raise invalid_parameter_value using message = 'posthaste: a log has no namespaces',
            hint = 'Leave it out, or give the service a schema of its own.';
    end if;

    if log_enqueue.dedupe_key is not null then
        insert into "@dedupe" as d (namespace, topic, dedupe_key, message_id, expires_at)
        values ('default', log_enqueue.topic, log_enqueue.dedupe_key, new_id, now() + log_enqueue.dedupe_window)
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
                and not exists (select from "@failed" f where f.event_id = d.message_id) as yes) free
        )
        returning d.message_id, d.expires_at into held, held_until;
        -- The same event again finds its own key held since an earlier time.
        if held <> new_id or held_until <> now() + log_enqueue.dedupe_window then
            return query values (held, false);
            return;
        end if;
    end if;
    loop
        shape := pg_sequence_last_value('@schema.log_shape'::regclass);
        place := (shape >> 16) + "@schema".log_hash(coalesce(log_enqueue.key, new_id::text)) % (shape & 65535);
        number := nextval(('@schema.log_shard_' || place || '_seq')::regclass);
        -- The number is locked from here on; if the shards are others by now, it is of one that may be read to its end already.
        exit when shape = pg_sequence_last_value('@schema.log_shape'::regclass);
    end loop;
    if log_enqueue.not_before > now() then
        insert into "@failed" (
            shard, log_id, event_id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id,
            content_type, payload, headers, next_attempt_at
        ) values (
            place, number, new_id, log_enqueue.topic, log_enqueue.key, log_enqueue.tenant, log_enqueue.event_type,
            log_enqueue.source, log_enqueue.aggregate_type, log_enqueue.aggregate_id,
            nullif(log_enqueue.content_type, 'application/json'), body,
            convert_to(nullif(carried, '{}')::text, 'UTF8'), log_enqueue.not_before
        );
    else
        insert into "@outbox" (
            shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type,
            payload, headers
        ) values (
            place, number, new_id, log_enqueue.topic, log_enqueue.key, log_enqueue.tenant, log_enqueue.event_type,
            log_enqueue.source, log_enqueue.aggregate_type, log_enqueue.aggregate_id,
            nullif(log_enqueue.content_type, 'application/json'), body,
            convert_to(nullif(carried, '{}')::text, 'UTF8')
        );
    end if;
    return query values (new_id, true);
end
$posthaste$;
