-- A move that was taken back while it was under way goes no further, whoever has begun it.

-- Keeps others from putting up or taking down what a move relies on. A snapshot that is older than the lock might show neither that
-- nor what was written until then.
create function "@schema".log_lock_queue(lock_mode text) returns void
language plpgsql
as $posthaste$
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise object_not_in_prerequisite_state
            using message = 'posthaste: an outbox is moved at the isolation level read committed only';
    end if;
    execute format('lock table %I.outbox in %s mode', '@schema', lock_mode);
end
$posthaste$;

create function "@schema".log_refuse_unfenced() returns void
language plpgsql
as $posthaste$
begin
    if not exists (select from pg_trigger where tgrelid = '@schema.outbox'::regclass and tgname = 'log_refuse_claim') then
        raise object_not_in_prerequisite_state
            using message = 'posthaste: the move was taken back meanwhile; nothing more was moved',
            hint = 'Relays of the queue may claim. Run `posthaste log move` again if the queue shall be moved.';
    end if;
end
$posthaste$;

-- What a relay has claimed since the move was taken back, and begun anew by another, is not passed by later rows of its key.
create or replace function "@schema".log_move_batch(fresh_limit integer) returns bigint
language plpgsql
as $posthaste$
declare
    last_seq bigint;
    fresh    bigint;
    m        "@schema".outbox;
    moved    bigint := 0;
begin
    perform "@schema".log_lock_queue('row exclusive');
    perform "@schema".log_refuse_unfenced();
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
        and not exists (
            select from "@schema".outbox l
            where l.namespace = 'default' and l.status = 'processing' and l.locked_until > now()
                and l.topic = o.topic and l.ordering_key = o.ordering_key and l.seq < o.seq
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

create or replace function "@schema".log_redirect_queue() returns bigint
language plpgsql
as $posthaste$
declare
    moved bigint := 0;
    batch bigint;
begin
    perform "@schema".log_lock_queue('share row exclusive');
    perform "@schema".log_refuse_unfenced();
    if exists (
        select from "@schema".outbox
        where namespace = 'default' and status = 'processing' and locked_until > now()
    ) then
        raise object_not_in_prerequisite_state
            using message = 'posthaste: a relay of the queue has claimed messages meanwhile; nothing more was moved',
            hint = 'Run `posthaste log move` again: it waits for them.';
    end if;
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

create or replace function "@schema".log_unfence_queue() returns boolean
language plpgsql
as $posthaste$
begin
    if exists (select from pg_trigger where tgrelid = '@schema.outbox'::regclass and tgname = 'log_refuse_claim')
        and not exists (select from pg_trigger where tgrelid = '@schema.outbox'::regclass and tgname = 'log_redirect') then
        -- Whoever is moving a batch has ended then, and what it moved is seen.
        perform "@schema".log_lock_queue('access exclusive');
    end if;
    if exists (select from pg_trigger where tgrelid = '@schema.outbox'::regclass and tgname = 'log_redirect') then
        raise object_not_in_prerequisite_state
            using message = 'posthaste: this outbox was moved to the log, and what is written to the queue goes there';
    end if;
    if not exists (select from pg_trigger where tgrelid = '@schema.outbox'::regclass and tgname = 'log_refuse_claim') then
        return false;
    end if;
    -- Dead letters too: the queue would not find them, nor be blocked by them.
    if exists (select from "@schema".log_failed)
        or exists (
            select from "@schema".log_shards s
            where exists (select from "@schema".log l where l.shard = s.shard and l.seq > s.position)
        ) then
        raise object_not_in_prerequisite_state using message = 'posthaste: messages wait in the log, and those of the queue must'
            ' not pass them: run `posthaste log move` to its end';
    end if;
    drop trigger log_refuse_claim on "@schema".outbox;
    drop trigger log_refuse_unfit on "@schema".outbox;
    return true;
end
$posthaste$;
