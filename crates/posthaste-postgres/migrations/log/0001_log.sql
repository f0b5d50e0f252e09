-- The log: rows are written once and never changed. A segment is a partition, which goes as a whole when all of it is settled
-- and old; a shard is a log of its own within, with a reader of its own.
create table "@outbox" (
    segment        bigint not null,
    shard          integer not null,
    seq            bigint not null,
    id             uuid not null default gen_random_uuid(),
    topic          text not null,
    ordering_key   text,
    tenant         text,
    event_type     text,
    source         text,
    aggregate_type text,
    aggregate_id   text,
    -- Nothing stands for application/json.
    content_type   text,
    payload        bytea not null,
    -- A JSON object of names and texts, as UTF-8; nothing if there are none.
    headers        bytea,
    created_at     timestamptz not null default clock_timestamp(),
    -- What is longer fits in no index of the table of failures, so that it could neither be retried nor be given up.
    constraint log_topic_fits check (octet_length(topic) <= 512),
    constraint log_ordering_key_fits check (octet_length(ordering_key) <= 2048)
) partition by range (segment);

-- No primary key: one narrow index is all that an insert pays for.
create index log_by_seq on "@outbox" (shard, seq);

create table "@schema".log_1 partition of "@outbox" for values from (1) to (2);
create table "@schema".log_2 partition of "@outbox" for values from (2) to (3);
create table "@schema".log_3 partition of "@outbox" for values from (3) to (4);

-- Where new rows go. Sequences, because they are not transactional: an insert sees the newest value, however old its snapshot is.
-- log_segment is the current segment, log_shape is the first of the current shards * 65536 + how many there are.
create sequence "@schema".log_segment cache 1;
create sequence "@schema".log_shape cache 1;
select setval('@schema.log_segment'::regclass, 1), setval('@schema.log_shape'::regclass, 0 * 65536 + 1);

alter table "@outbox" alter column segment set default pg_sequence_last_value('@schema.log_segment'::regclass);

-- Each shard counts for itself, from its number * 2^44 on, so that a row's number is its only one. Whoever has taken a number holds a lock on its sequence until the transaction ends, which
-- proves what a gap is; owned by the column, so that whoever looks at the table finds them.
create sequence "@schema".log_shard_0_seq cache 1 owned by "@outbox".seq;

-- How far each shard was read and by whom. "state" is what the reader knows: its highest number, and the ranges at or below
-- that are not settled. "handed_out" is what it may have in flight, written ahead, with the crashes that rows may have caused:
-- `reader reach;first-last:crashes,…`, and after another `;` the same of log_failed. "position" is the number up to which everything is settled, for the eyes of operators and of retention.
create table "@reader_state" (
    shard        integer primary key,
    generation   integer not null default 1,
    state        text not null default '',
    handed_out   text not null default '',
    position     bigint not null default 0,
    hi           bigint not null default 0,
    epoch        bigint not null default 0,
    owner        uuid,
    leased_until timestamptz,
    updated_at   timestamptz not null default now()
) with (fillfactor = 20);
insert into "@reader_state" (shard) values (0);

-- What waits: failures between two tries, rows behind them, messages with a time of their own, and the dead. "log_id" is
-- the row's number in its shard, and its place in its lane.
create table "@failed" (
    id              bigint generated always as identity primary key,
    shard           integer not null,
    log_id          bigint not null,
    event_id        uuid not null,
    topic           text not null,
    ordering_key    text,
    tenant          text,
    event_type      text,
    source          text,
    aggregate_type  text,
    aggregate_id    text,
    content_type    text,
    payload         bytea not null,
    headers         bytea,
    attempts        integer not null default 0,
    next_attempt_at timestamptz not null default now(),
    last_error      text,
    created_at      timestamptz not null default clock_timestamp(),
    updated_at      timestamptz not null default now(),
    died_at         timestamptz,
    unique (shard, log_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
create index log_failed_event on "@failed" (event_id);
create index log_failed_lane on "@failed" (topic, ordering_key, log_id);
create index log_failed_dead on "@failed" (died_at) where died_at is not null;

-- In which shard a key is: a number of 31 bits, of which the library knows the same.
create function "@schema".log_hash(key text) returns integer
language sql immutable strict parallel safe
as $posthaste$ select ('x' || left(md5(key), 8))::bit(32)::integer & 2147483647 $posthaste$;

-- Gives a row its shard and its number, if the insert did not: COPY, and inserts from any language.
create function "@schema".log_place() returns trigger
language plpgsql
as $posthaste$
declare
    shape bigint := pg_sequence_last_value('@schema.log_shape'::regclass);
begin
    -- One shard, as at first: there is nothing to find out.
    if shape = 1 then
        new.shard := 0;
        new.seq := nextval('@schema.log_shard_0_seq'::regclass);
        return new;
    end if;
    new.shard := (shape >> 16) + (('x' || left(md5(coalesce(new.ordering_key, new.id::text)), 8))::bit(32)::integer
        & 2147483647) % (shape & 65535);
    new.seq := nextval(('@schema.log_shard_' || new.shard || '_seq')::regclass);
    return new;
end
$posthaste$;
create trigger log_place before insert on "@outbox" for each row when (new.seq is null)
    execute function "@schema".log_place();

-- Enqueueing from any language, with the arguments of the queue's "enqueue".
create function "@schema".log_enqueue(
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
                   case when free.yes then excluded.expires_at else d.expires_at end
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

-- Lets "enqueue" write to the log, for callers that know nothing of layouts. Called here where the queue was never used, else by
-- whoever moves it.
create function "@schema".use_log() returns void
language plpgsql
as $posthaste$
begin
    create or replace function "@schema"."enqueue"(
        topic text, payload text default null, key text default null, event_type text default null,
        aggregate_type text default null, aggregate_id text default null, tenant text default null,
        dedupe_key text default null, headers jsonb default '{}', not_before timestamptz default null,
        source text default null, content_type text default 'application/json', namespace text default 'default',
        payload_bytes bytea default null, message_id uuid default null, dedupe_window interval default '7 days'
    ) returns table (id uuid, is_new boolean)
    language sql volatile
    as $function$
        select * from "@schema".log_enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
    $function$;
end
$posthaste$;
select "@schema".use_log()
where pg_sequence_last_value(pg_get_serial_sequence('@schema.outbox', 'seq')::regclass) is null;
