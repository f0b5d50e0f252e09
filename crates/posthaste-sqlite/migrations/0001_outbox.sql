-- Which migrations were applied.
create table "@migrations" (
    version    integer primary key,
    name       text not null,
    applied_at integer not null default (cast(unixepoch('subsec') * 1000 as integer))
);

-- The outbox: rows carry their own state and lease. Times are milliseconds since 1970, by SQLite's own clock.
-- The defaults let any language enqueue with a plain insert in its own transaction:
--   insert into posthaste_outbox (topic, ordering_key, payload) values ('order-events', '42', '{"orderId": 42}');
create table "@outbox" (
    seq             integer primary key autoincrement, -- never given out twice, so a removed row leaves its place empty
    id              text not null default (lower(
        hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-'
        || substr('89ab', 1 + abs(random() % 4), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    namespace       text not null default 'default',
    topic           text not null,
    ordering_key    text,
    tenant          text,
    dedupe_key      text,
    event_type      text,
    source          text,
    aggregate_type  text,
    aggregate_id    text,
    content_type    text not null default 'application/json',
    payload         blob not null,
    headers         text not null default '{}',
    content_hash    blob,
    status          text not null default 'pending' check (status in ('pending', 'processing', 'delivered', 'dead')),
    attempts        integer not null default 0,
    next_attempt_at integer not null default (cast(unixepoch('subsec') * 1000 as integer)),
    locked_by       text,
    lease_token     text,
    locked_until    integer,
    last_error      text,
    created_at      integer not null default (cast(unixepoch('subsec') * 1000 as integer)),
    updated_at      integer not null default (cast(unixepoch('subsec') * 1000 as integer)),
    delivered_at    integer
);

-- "Fresh" rows are due since they were written, "waiting" ones have a time of their own (a retry or a scheduled start):
-- next_attempt_at > created_at tells them apart, so that each kind has an index in the order in which it is claimed and
-- neither has to be searched past. Every index of SQLite ends in the rowid, which is seq.
--
-- The statements name their indexes: statistics of a queue are taken when it happens to be empty or full, and would mislead.
create unique index "@outbox+id" on "@outbox" (id);
create index "@outbox+fresh" on "@outbox" (namespace)
    where status = 'pending' and next_attempt_at <= created_at;
create index "@outbox+waiting" on "@outbox" (namespace, next_attempt_at)
    where status = 'pending' and next_attempt_at > created_at;
create index "@outbox+waiting_key" on "@outbox" (namespace, topic, ordering_key)
    where status = 'pending' and next_attempt_at > created_at and ordering_key is not null;
create index "@outbox+tried" on "@outbox" (namespace, attempts)
    where status = 'pending' and attempts > 0;
create index "@outbox+leased" on "@outbox" (namespace, locked_until, topic, ordering_key)
    where status = 'processing';
create index "@outbox+dead" on "@outbox" (namespace, topic, ordering_key)
    where status = 'dead';
create index "@outbox+delivered" on "@outbox" (delivered_at)
    where status = 'delivered';

-- Dedupe keys, apart from the rows: a key must stay taken after its row was purged.
create table "@dedupe" (
    namespace  text not null,
    topic      text not null,
    dedupe_key text not null,
    message_id text not null,
    expires_at integer not null
);
create unique index "@dedupe+key" on "@dedupe" (namespace, topic, dedupe_key);
create index "@dedupe+expiry" on "@dedupe" (expires_at);

-- What each consumer has handled.
create table "@inbox" (
    consumer   text not null,
    key        text not null,
    handled_at integer not null default (cast(unixepoch('subsec') * 1000 as integer))
);
create unique index "@inbox+key" on "@inbox" (consumer, key);
create index "@inbox+handled" on "@inbox" (consumer, handled_at);
