-- What does not fit into the log is refused when a move begins, and what is written from then on as well: else the move would stop
-- half way, with relays of neither layout to deliver.

create function "@schema".log_refuse_unfit() returns trigger
language plpgsql
as $posthaste$
declare
    field   text := case when octet_length(new.topic) > 512 then 'topic' else 'ordering_key' end;
    bytes   integer := case field when 'topic' then octet_length(new.topic) else octet_length(new.ordering_key) end;
    allowed integer := case field when 'topic' then 512 else 2048 end;
begin
    raise check_violation using message = format('posthaste: %s has %s bytes and may have %s', field, bytes, allowed),
        hint = 'This outbox is moved to the log, which takes no more. Shorten it.';
end
$posthaste$;

create or replace function "@schema".log_fence_queue() returns boolean
language plpgsql
as $posthaste$
begin
    if not exists (select from pg_trigger where tgrelid = '@schema.outbox'::regclass and tgname = 'log_refuse_unfit') then
        create trigger log_refuse_unfit before insert or update of topic, ordering_key on "@schema".outbox for each row
            when (new.namespace = 'default' and (octet_length(new.topic) > 512 or octet_length(new.ordering_key) > 2048))
            execute function "@schema".log_refuse_unfit();
    end if;
    if exists (select from pg_trigger where tgrelid = '@schema.outbox'::regclass and tgname = 'log_refuse_claim') then
        return false;
    end if;
    create trigger log_refuse_claim before update on "@schema".outbox for each row
        when (new.namespace = 'default' and new.status = 'processing' and new.lease_token is distinct from old.lease_token)
        execute function "@schema".log_refuse_claim();
    return true;
end
$posthaste$;

-- Those that were fenced before this migration.
select "@schema".log_fence_queue()
where exists (select from pg_trigger where tgrelid = '@schema.outbox'::regclass and tgname = 'log_refuse_claim');

-- Takes back that a move was begun: relays of the queue may claim again. Says whether there was one. What is left in the queue must
-- not pass what was moved.
create function "@schema".log_unfence_queue() returns boolean
language plpgsql
as $posthaste$
begin
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
