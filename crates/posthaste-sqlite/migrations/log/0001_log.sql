-- The log: rows are written once and never changed. SQLite has one writer at a time and gives numbers under its lock, so rows
-- appear in the order of their numbers, and a reader that goes by them passes over none.
-- The defaults let any language enqueue with a plain insert in its own transaction:
--   insert into posthaste_log (topic, ordering_key, payload) values ('order-events', '42', '{"orderId": 42}');
create table "@outbox" (
    seq            integer primary key autoincrement -- never given out twice, so a removed row leaves its place empty
        constraint "seq is above 0: leave it out, it is filled in" check (seq > 0),
    id             text not null default (lower(
        hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-'
        || substr('89ab', 1 + abs(random() % 4), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))))
        constraint "id is text: write a UUID as 0199c3a2-…, not as bytes" check (typeof(id) = 'text'),
    topic          text not null,
    ordering_key   text,
    tenant         text,
    dedupe_key     text,
    event_type     text,
    source         text,
    aggregate_type text,
    aggregate_id   text,
    content_type   text not null default 'application/json',
    payload        blob not null,
    headers        text, -- a JSON object, or nothing
    content_hash   blob,
    created_at     integer not null default (cast(unixepoch('subsec') * 1000 as integer))
);
create unique index "@outbox+id" on "@outbox" (id);

-- What was not delivered at its first attempt, what waits behind that in its key, what waits for its time, and what died.
create table "@failed" (
    number          integer primary key autoincrement,
    log_id          integer not null, -- its place in the log; of a message with a time of its own, that of the row before it
    id              text not null,
    topic           text not null,
    ordering_key    text,
    tenant          text,
    dedupe_key      text,
    event_type      text,
    source          text,
    aggregate_type  text,
    aggregate_id    text,
    content_type    text not null,
    payload         blob not null,
    headers         text,
    content_hash    blob,
    attempts        integer not null default 0,
    next_attempt_at integer not null,
    last_error      text,
    created_at      integer not null,
    failed_at       integer not null default (cast(unixepoch('subsec') * 1000 as integer)),
    died_at         integer -- dead letters have a time here, and no other rows
);
create unique index "@failed+id" on "@failed" (id);
create index "@failed+lane" on "@failed" (topic, ordering_key, died_at);
create index "@failed+due" on "@failed" (next_attempt_at) where died_at is null;
create index "@failed+died" on "@failed" (died_at) where died_at is not null;

-- Who reads the log, and how far it is settled: everything up to hi but for what is open, which are ranges [first, last].
create table "@cursor" (
    shard        integer primary key,
    epoch        integer not null default 0, -- goes up with every reader; what an earlier one writes is refused
    owner        text,                       -- none after a reader that ended cleanly
    leased_until integer not null default 0,
    hi           integer not null default 0,
    open         text not null default '[]',
    handed_out   text not null default ';',  -- what may be in flight, written ahead: `reach;first-last:crashes,…`
    updated_at   integer not null default (cast(unixepoch('subsec') * 1000 as integer))
);
insert into "@cursor" (shard) values (0);

-- A row that the reader has passed would never be delivered, so it is refused: its number was chosen by its writer, or the
-- sequence was set back, as with a table that was emptied.
create trigger "@outbox+number" after insert on "@outbox"
when new.seq <= (select hi from "@cursor" where shard = 0)
begin
    select raise(abort, 'posthaste: the log was read beyond the number of this row, which would never be delivered; leave seq out; if it was, the sequence was set back, and a relay sets it right: start one, or wait a second for it');
end;

-- Each event with its state, for operators. What is in flight is pending here.
create view "@outbox+states" as
select o.seq, o.id, o.topic, o.ordering_key, o.tenant, o.event_type, o.source, o.aggregate_type, o.aggregate_id, o.content_type,
    o.payload, o.headers, o.created_at,
    case
        when f.died_at is not null then 'dead'
        when f.number is not null then 'pending'
        when o.seq > c.hi then 'pending'
        when exists (
            select 1 from json_each(c.open) r where o.seq between r.value ->> 0 and r.value ->> 1
        ) then 'pending'
        else 'delivered'
    end as status,
    coalesce(f.attempts, 0) as attempts, f.next_attempt_at, f.last_error, f.died_at
from "@outbox" o
cross join "@cursor" c
left join "@failed" f on f.id = o.id
union all
select f.log_id, f.id, f.topic, f.ordering_key, f.tenant, f.event_type, f.source, f.aggregate_type, f.aggregate_id, f.content_type,
    f.payload, f.headers, f.created_at, iif(f.died_at is null, 'pending', 'dead'), f.attempts, f.next_attempt_at, f.last_error,
    f.died_at
from "@failed" f
where not exists (select 1 from "@outbox" o where o.id = f.id);
