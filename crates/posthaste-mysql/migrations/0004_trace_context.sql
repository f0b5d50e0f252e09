-- A message that the procedure enqueues takes the trace along that the session was told of:
--   set @posthaste_traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
-- and @posthaste_tracestate and @posthaste_baggage likewise. Headers that the call gives come first. A session keeps its
-- variables: set them with each transaction, or to null.
drop procedure if exists `posthaste_enqueue`;
create procedure `posthaste_enqueue`(
    in p_topic   text character set utf8mb4,
    in p_key     text character set utf8mb4,
    in p_payload longblob,
    in p_options longtext character set utf8mb4,
    out p_id     char(36) character set ascii,
    out p_is_new boolean
)
sql security invoker
begin
    declare v_options longtext character set utf8mb4 collate utf8mb4_bin default coalesce(p_options, '{}');
    declare v_namespace, v_tenant, v_dedupe_key, v_event_type, v_source, v_aggregate_type, v_aggregate_id, v_content_type,
        v_not_before, v_message_id, v_field, v_value text character set utf8mb4 collate utf8mb4_bin;
    declare v_headers longtext character set utf8mb4 collate utf8mb4_bin;
    declare v_problem text character set utf8mb4;
    declare v_now datetime(6) default utc_timestamp(6);
    declare v_window bigint;
    declare v_random char(32) character set ascii default left(sha2(concat(uuid(), rand()), 256), 32);
    declare v_millis char(12) character set ascii;
    declare v_call, v_held_by, v_held_id char(36) character set ascii collate ascii_bin;
    declare v_own_transaction boolean default false;
    declare v_taken text character set utf8mb4 collate utf8mb4_bin;
    declare v_traceparent, v_tracestate, v_baggage longtext character set utf8mb4 collate utf8mb4_bin;

    declare exit handler for sqlexception
    begin
        -- After a deadlock the server has undone everything, the mark with it.
        declare continue handler for 1305 begin end;
        if v_own_transaction then
            rollback;
        else
            rollback to savepoint posthaste_enqueue;
        end if;
        resignal;
    end;

    -- Outside a transaction a mark is forgotten at once. To begin one inside the caller's would commit that.
    begin
        declare continue handler for 1305 set v_own_transaction = true;
        savepoint posthaste_enqueue;
        release savepoint posthaste_enqueue;
    end;
    if v_own_transaction then
        start transaction;
    else
        savepoint posthaste_enqueue;
    end if;

    if not json_valid(v_options) or json_type(v_options) <> 'OBJECT' then
        signal sqlstate '22023' set message_text = 'posthaste: options is not a JSON object; give one, or null';
    end if;
    set v_field = (
        select max(given.name)
        from json_table(json_keys(v_options), '$[*]' columns (name text character set utf8mb4 path '$')) given
        where given.name not in ('event_type', 'aggregate_type', 'aggregate_id', 'tenant', 'dedupe_key', 'headers', 'source',
            'content_type', 'namespace', 'message_id', 'not_before', 'dedupe_window_seconds')
    );
    if v_field is not null then
        set v_problem = concat('posthaste: there is no option ', left(v_field, 40), '; leave it out');
        signal sqlstate '22023' set message_text = v_problem;
    end if;
    select coalesce(o.namespace, 'default'), o.tenant, o.dedupe_key, o.event_type, o.source, o.aggregate_type,
        o.aggregate_id, coalesce(o.content_type, 'application/json'), o.not_before, lower(o.message_id),
        coalesce(o.dedupe_window_seconds, 604800)
    into v_namespace, v_tenant, v_dedupe_key, v_event_type, v_source, v_aggregate_type,
        v_aggregate_id, v_content_type, v_not_before, v_message_id, v_window
    from json_table(v_options, '$' columns (
        namespace text path '$.namespace', tenant text path '$.tenant', dedupe_key text path '$.dedupe_key',
        event_type text path '$.event_type', source text path '$.source', aggregate_type text path '$.aggregate_type',
        aggregate_id text path '$.aggregate_id', content_type text path '$.content_type',
        not_before text path '$.not_before', message_id text path '$.message_id',
        dedupe_window_seconds bigint path '$.dedupe_window_seconds'
    )) o;
    set v_headers = coalesce(json_extract(v_options, '$.headers'), '{}');

    if p_payload is null then
        signal sqlstate '22023' set message_text = 'posthaste: payload is null; give it a value';
    elseif octet_length(p_payload) > 1048576 then
        signal sqlstate '22023'
            set message_text = 'posthaste: payload has more than 1048576 bytes; store it elsewhere and send a reference';
    end if;
    select max(concat(named.field, case when trim(named.value) = '' then ' is empty; give it a value, or leave an optional one out'
        else ' has more than 512 bytes; shorten it' end))
    into v_problem
    from (
        select 'topic' as field, coalesce(p_topic, '') as value
        union all select 'namespace', v_namespace
        union all select 'content_type', v_content_type
        union all select 'key', p_key
        union all select 'tenant', v_tenant
        union all select 'dedupe_key', v_dedupe_key
        union all select 'event_type', v_event_type
        union all select 'source', v_source
        union all select 'aggregate_type', v_aggregate_type
        union all select 'aggregate_id', v_aggregate_id
    ) named
    where trim(named.value) = '' or octet_length(named.value) > 512;
    if v_problem is not null then
        set v_problem = concat('posthaste: ', v_problem);
        signal sqlstate '22023' set message_text = v_problem;
    end if;
    if json_type(v_headers) <> 'OBJECT' or exists (
        select 1
        from json_table(json_keys(v_headers), '$[*]' columns (name text character set utf8mb4 path '$')) given
        where given.name not regexp '^[A-Za-z0-9._-]*[A-Za-z0-9][A-Za-z0-9._-]*$'
            or json_type(json_extract(v_headers, concat('$."', given.name, '"'))) <> 'STRING'
    ) then
        signal sqlstate '22023' set message_text =
            'posthaste: headers must be an object of strings; names are letters, digits, ".", "_" and "-"';
    elseif octet_length(v_headers) > 16384 then
        signal sqlstate '22023' set message_text = 'posthaste: headers have more than 16384 bytes; shorten them';
    end if;
    -- A header travels as the attribute of its letters and digits; the envelope's own attributes are not for headers.
    select min(concat(left(h.name, 40), case
        when h.attribute in ('specversion', 'id', 'source', 'type', 'time', 'subject', 'datacontenttype', 'dataschema',
            'data', 'database64', 'partitionkey', 'aggregatetype', 'aggregateid', 'tenant')
            then ' has the name of an envelope attribute; rename it'
        when h.namesakes > 1 then ' differs from another header only in case or punctuation; rename it'
        when replace(h.value, char(9), '') regexp '[[:cntrl:]]' then ' has a value with a control character; remove it'
    end))
    into v_problem
    from (
        select g.name, g.attribute, json_unquote(json_extract(v_headers, concat('$."', g.name, '"'))) as value,
            count(*) over (partition by g.attribute) as namesakes
        from (
            select given.name, lower(replace(replace(replace(given.name, '.', ''), '_', ''), '-', '')) as attribute
            from json_table(json_keys(v_headers), '$[*]' columns (name text character set utf8mb4 path '$')) given
        ) g
    ) h;
    if v_problem is not null then
        set v_problem = concat('posthaste: header ', v_problem);
        signal sqlstate '22023' set message_text = v_problem;
    end if;
    -- The trace that the session was told of, unless the call has headers of these names, whatever their case and punctuation.
    -- No message is refused because of it: what does not fit is left out.
    set v_taken = (
        select coalesce(group_concat(lower(replace(replace(replace(given.name, '.', ''), '_', ''), '-', ''))), '')
        from json_table(json_keys(v_headers), '$[*]' columns (name text character set utf8mb4 path '$')) given
        where lower(replace(replace(replace(given.name, '.', ''), '_', ''), '-', '')) in ('traceparent', 'tracestate', 'baggage')
    );
    begin
        -- What is no text is null.
        declare continue handler for sqlexception begin end;
        set v_traceparent = convert(@posthaste_traceparent using utf8mb4);
        set v_tracestate = convert(@posthaste_tracestate using utf8mb4);
        set v_baggage = convert(@posthaste_baggage using utf8mb4);
    end;
    -- "$" would take a line break at the end as well. Ids of zeros are none.
    if not find_in_set('traceparent', v_taken) and not find_in_set('tracestate', v_taken)
        and octet_length(v_traceparent) = 55 and v_traceparent regexp '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
        and v_traceparent not regexp '^00-0{32}-|-0{16}-'
        and octet_length(json_set(v_headers, '$.traceparent', v_traceparent)) <= 16384 then
        set v_headers = json_set(v_headers, '$.traceparent', v_traceparent);
        if v_tracestate <> '' and octet_length(v_tracestate) <= 512 and v_tracestate not regexp '[[:cntrl:]]'
            and octet_length(json_set(v_headers, '$.tracestate', v_tracestate)) <= 16384 then
            set v_headers = json_set(v_headers, '$.tracestate', v_tracestate);
        end if;
    end if;
    if not find_in_set('baggage', v_taken) and v_baggage <> '' and octet_length(v_baggage) <= 8192
        and v_baggage not regexp '[[:cntrl:]]' and octet_length(json_set(v_headers, '$.baggage', v_baggage)) <= 16384 then
        set v_headers = json_set(v_headers, '$.baggage', v_baggage);
    end if;
    if v_tenant is not null and v_dedupe_key is not null
        and left(v_dedupe_key, char_length(v_tenant) + 1) <> concat(v_tenant, '/') then
        signal sqlstate '22023' set message_text = 'posthaste: dedupe_key does not begin with the tenant and "/"; prefix it';
    end if;
    if v_event_type not regexp '^[a-z][a-z0-9-]*[.][a-z][a-z0-9-]*[.][a-z][a-z0-9-]*[.]v[1-9][0-9]*$' then
        signal sqlstate '22023' set message_text =
            'posthaste: event_type is not a type name; write {company}.{domain}.{action}.v{n}, e.g. acme.order.created.v1';
    end if;
    if v_message_id not regexp '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' then
        signal sqlstate '22023' set message_text = 'posthaste: message_id is not a UUID; correct it or leave it out';
    end if;
    if v_not_before is not null and cast(v_not_before as datetime(6)) is null then
        signal sqlstate '22023' set message_text =
            'posthaste: not_before is not a time; write it in UTC as 2030-01-31 12:00:00';
    end if;

    -- A UUIDv7: 48 bits of milliseconds in front of a random one.
    set v_millis = lpad(lower(conv(floor(unix_timestamp(now(6)) * 1000), 10, 16)), 12, '0');
    set p_id = coalesce(v_message_id, concat(left(v_millis, 8), '-', right(v_millis, 4), '-7', substring(v_random, 1, 3), '-',
        substring('89ab', 1 + floor(rand() * 4), 1), substring(v_random, 4, 3), '-', substring(v_random, 7, 12)));
    set p_is_new = true;
    if v_dedupe_key is not null then
        set v_call = uuid();
        insert into "@dedupe" (namespace, topic, dedupe_key, message_id, held_by, expires_at)
        values (v_namespace, p_topic, v_dedupe_key, p_id, v_call, timestampadd(second, v_window, v_now))
        on duplicate key update held_by = "@dedupe".held_by;
        -- Locking, because a plain read may be one of the past.
        select d.message_id, d.held_by into v_held_id, v_held_by
        from "@dedupe" d
        where d.namespace = cast(v_namespace as binary) and d.topic = cast(p_topic as binary)
            and d.dedupe_key = cast(v_dedupe_key as binary)
        for update;
        if v_held_by <> v_call then
            -- A key whose window is over, and whose row is gone, is free.
            update "@dedupe" d
            set d.message_id = p_id, d.held_by = v_call, d.expires_at = timestampadd(second, v_window, v_now)
            where d.namespace = cast(v_namespace as binary) and d.topic = cast(p_topic as binary)
                and d.dedupe_key = cast(v_dedupe_key as binary) and d.expires_at <= v_now
                and not exists (select 1 from "@outbox" o where o.id = d.message_id);
            if row_count() = 0 then
                set p_id = v_held_id;
                set p_is_new = false;
            end if;
        end if;
    end if;
    if p_is_new then
        begin
            -- The same id is the same event.
            declare continue handler for 1062 set p_is_new = false;
            insert into "@outbox" (
                id, namespace, topic, ordering_key, tenant, dedupe_key, event_type, source, aggregate_type, aggregate_id,
                content_type, payload, headers, content_hash, status, attempts, next_attempt_at, created_at, updated_at
            ) values (
                p_id, v_namespace, p_topic, p_key, v_tenant, v_dedupe_key, v_event_type, v_source, v_aggregate_type,
                v_aggregate_id, v_content_type, p_payload, v_headers,
                unhex(sha2(concat(p_id, '|', coalesce(v_event_type, ''), '|', p_payload), 256)), 'pending', 0,
                greatest(v_now, coalesce(cast(v_not_before as datetime(6)), v_now)), v_now, v_now
            );
        end;
    end if;
    if v_own_transaction then
        commit;
    end if;
end;
