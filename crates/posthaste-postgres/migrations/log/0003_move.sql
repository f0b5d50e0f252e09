-- What moves a queue into the log: `posthaste log move` calls it. Only the namespace "default" is moved, for a log has none; others
-- stay where they are.

-- Puts a row of the queue into the log: what is due and was never tried as a row to be read, the rest among what waits or is dead.
-- Its number is taken here, so that calls in order keep it.
create function "@schema".log_take_over(m "@schema".outbox) returns void
language plpgsql
as $posthaste$
declare
    shape  bigint;
    place  integer;
    number bigint;
begin
    loop
        shape := pg_sequence_last_value('@schema.log_shape'::regclass);
        place := (shape >> 16) + "@schema".log_hash(coalesce(m.ordering_key, m.id::text)) % (shape & 65535);
        number := nextval(format('%I.%I', '@schema', 'log_shard_' || place || '_seq')::regclass);
        -- The number is locked from here on; if the shards are others by now, it is of one that may be read to its end already.
        exit when shape = pg_sequence_last_value('@schema.log_shape'::regclass);
    end loop;
    if m.status <> 'dead' and m.attempts = 0 and m.next_attempt_at <= clock_timestamp() then
        insert into "@schema".log (
            shard, seq, id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id, content_type,
            payload, headers, created_at
        ) values (
            place, number, m.id, m.topic, m.ordering_key, m.tenant, m.event_type, m.source, m.aggregate_type, m.aggregate_id,
            nullif(m.content_type, 'application/json'), m.payload, convert_to(nullif(m.headers, '{}')::text, 'UTF8'), m.created_at
        );
    else
        insert into "@schema".log_failed (
            shard, log_id, event_id, topic, ordering_key, tenant, event_type, source, aggregate_type, aggregate_id,
            content_type, payload, headers, attempts, next_attempt_at, last_error, created_at, died_at
        ) values (
            place, number, m.id, m.topic, m.ordering_key, m.tenant, m.event_type, m.source, m.aggregate_type, m.aggregate_id,
            nullif(m.content_type, 'application/json'), m.payload, convert_to(nullif(m.headers, '{}')::text, 'UTF8'),
            m.attempts, m.next_attempt_at, m.last_error, m.created_at, case when m.status = 'dead' then m.updated_at end
        );
    end if;
end
$posthaste$;

-- Moves the oldest rows of the queue, in their order, and says how many. Each is in one place at any time, so that a move which
-- was cut short is gone on with. Besides `fresh_limit` fresh rows it takes all others that are older than the last of these.
create function "@schema".log_move_batch(fresh_limit integer) returns bigint
language plpgsql
as $posthaste$
declare
    last_seq bigint;
    fresh    bigint;
    m        "@schema".outbox;
    moved    bigint := 0;
begin
    select max(f.seq), count(*) into last_seq, fresh
    from (
        select o.seq from "@schema".outbox o
        where o.namespace = 'default' and o.status = 'pending' and o.next_attempt_at <= o.created_at
        order by o.seq
        limit fresh_limit
    ) f;
    if fresh < fresh_limit then
        last_seq := 9223372036854775807;
    end if;
    for m in
        select * from "@schema".outbox o
        where o.id in (
            select id from (
                select o.id from "@schema".outbox o
                where o.namespace = 'default' and o.status = 'pending' and o.next_attempt_at <= o.created_at
                order by o.seq
                limit fresh_limit
            ) f
            union all
            select o.id from "@schema".outbox o
            where o.namespace = 'default' and o.status = 'pending' and o.next_attempt_at > o.created_at and o.seq <= last_seq
            union all
            select o.id from "@schema".outbox o
            where o.namespace = 'default' and o.status = 'dead' and o.seq <= last_seq
            union all
            select o.id from "@schema".outbox o
            where o.namespace = 'default' and o.status = 'processing' and o.locked_until <= now() and o.seq <= last_seq
        )
        order by o.seq
        for update
    loop
        perform "@schema".log_take_over(m);
        delete from "@schema".outbox where id = m.id;
        moved := moved + 1;
    end loop;
    return moved;
end
$posthaste$;

-- Keeps relays from claiming what is being moved. What they have they may settle, and keep until they do.
create function "@schema".log_refuse_claim() returns trigger
language plpgsql
as $posthaste$
begin
    raise object_not_in_prerequisite_state using message = 'posthaste: this outbox was moved to the log',
        hint = 'Stop this relay, or set database.layout = "log" for it.';
end
$posthaste$;

create function "@schema".log_fence_queue() returns boolean
language plpgsql
as $posthaste$
begin
    if exists (select from pg_trigger where tgrelid = '@schema.outbox'::regclass and tgname = 'log_refuse_claim') then
        return false;
    end if;
    create trigger log_refuse_claim before update on "@schema".outbox for each row
        when (new.namespace = 'default' and new.status = 'processing' and new.lease_token is distinct from old.lease_token)
        execute function "@schema".log_refuse_claim();
    return true;
end
$posthaste$;

-- What is still written to the queue goes to the log. The row is stored all the same, as delivered, so that its writer gets back
-- what it asks for; the token of zeros marks it. It is appended only after it was stored: one that an `on conflict` left out is
-- not. With the rights of the owner: whoever could write to the queue need not know of the log.
create function "@schema".log_mark_redirected() returns trigger
language plpgsql
as $posthaste$
begin
    new.status := 'delivered';
    new.delivered_at := now();
    new.lease_token := '00000000-0000-0000-0000-000000000000';
    return new;
end
$posthaste$;

create function "@schema".log_redirect() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $posthaste$
begin
    new.status := 'pending';
    perform "@schema".log_take_over(new);
    return null;
end
$posthaste$;

-- The last step: with no writer in between, what is left is moved, and from then on all goes to the log.
create function "@schema".log_redirect_queue() returns bigint
language plpgsql
as $posthaste$
declare
    moved bigint := 0;
    batch bigint;
begin
    lock table "@schema".outbox in share row exclusive mode;
    loop
        batch := "@schema".log_move_batch(10000);
        moved := moved + batch;
        exit when batch = 0;
    end loop;
    if not exists (select from pg_trigger where tgrelid = '@schema.outbox'::regclass and tgname = 'log_redirect') then
        create trigger log_mark_redirected before insert on "@schema".outbox for each row
            when (new.namespace = 'default' and new.status = 'pending') execute function "@schema".log_mark_redirected();
        create trigger log_redirect after insert on "@schema".outbox for each row
            when (new.namespace = 'default' and new.status = 'delivered'
                and new.lease_token = '00000000-0000-0000-0000-000000000000')
            execute function "@schema".log_redirect();
    end if;
    return moved;
end
$posthaste$;
