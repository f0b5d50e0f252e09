-- The relays that serve this outbox, as they last said of themselves. For the eyes of operators; nothing depends on it.
create table "@relays" (
    worker         text primary key,
    namespace      text not null,
    publisher      text not null,
    host           text not null,
    pid            integer not null,
    version        text not null,
    started_at     integer not null,
    seen_at        integer not null,
    circuit        text not null check (circuit in ('closed', 'half-open', 'open')),
    circuit_since  integer not null,
    circuit_reason text
) without rowid;

-- Which relay leads, where only one of many may be active.
create table "@leaders" (
    namespace text primary key,
    worker    text not null,
    since     integer not null,
    until     integer not null
) without rowid;
