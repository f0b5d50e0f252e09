-- A role that may not create schemas can use one that was made for it: "if not exists" asks for the right all the same.
do $posthaste$ begin
    if not exists (select from pg_namespace where nspname = '@schema') then
        create schema "@schema";
    end if;
end $posthaste$;

-- Which migrations were applied.
create table "@migrations" (
    version    bigint primary key,
    name       text not null,
    applied_at timestamptz not null default now()
);

-- The outbox: rows carry their own state and lease.
create table "@outbox" (
    id              uuid primary key,
    seq             bigint generated always as identity (cache 1),
    namespace       text not null,
    topic           text not null,
    ordering_key    text,
    tenant          text,
    dedupe_key      text,
    event_type      text,
    source          text,
    aggregate_type  text,
    aggregate_id    text,
    content_type    text not null default 'application/json',
    payload         bytea not null,
    headers         jsonb not null default '{}',
    content_hash    bytea,
    status          text not null default 'pending' check (status in ('pending', 'processing', 'delivered', 'dead')),
    attempts        integer not null default 0,
    next_attempt_at timestamptz not null default now(),
    locked_by       uuid,
    lease_token     uuid,
    locked_until    timestamptz,
    last_error      text,
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now(),
    delivered_at    timestamptz
) with (
    -- Every row is updated twice; room on its page keeps the new versions close by.
    fillfactor = 50,
    -- The table churns: do not wait for a fifth of it to be dead.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

-- "Fresh" rows are due since they were written, "waiting" ones have a time of their own (a retry or a scheduled start):
-- next_attempt_at > created_at tells them apart, so that each kind has an index in the order in which it is claimed and
-- neither has to be searched past.
create index outbox_fresh on "@outbox" (namespace, seq)
    where status = 'pending' and next_attempt_at <= created_at;
create index outbox_waiting on "@outbox" (namespace, next_attempt_at, seq)
    where status = 'pending' and next_attempt_at > created_at;
create index outbox_waiting_key on "@outbox" (namespace, topic, ordering_key, seq) include (attempts)
    where status = 'pending' and next_attempt_at > created_at and ordering_key is not null;
create index outbox_tried on "@outbox" (namespace, attempts)
    where status = 'pending' and next_attempt_at <= created_at and attempts > 0;
create index outbox_leased on "@outbox" (namespace, locked_until)
    where status = 'processing';
create index outbox_dead on "@outbox" (namespace, topic, ordering_key, seq)
    where status = 'dead';
create index outbox_delivered on "@outbox" (delivered_at)
    where status = 'delivered';

-- Dedupe keys, apart from the rows: a key must stay taken after its row was purged.
create table "@dedupe" (
    namespace  text not null,
    topic      text not null,
    dedupe_key text not null,
    message_id uuid not null,
    expires_at timestamptz not null,
    primary key (namespace, topic, dedupe_key)
);
create index outbox_dedupe_expiry on "@dedupe" (expires_at);

-- What each consumer has handled.
create table "@inbox" (
    consumer   text not null,
    key        text not null,
    handled_at timestamptz not null default now(),
    primary key (consumer, key)
);
create index inbox_handled on "@inbox" (consumer, handled_at);
