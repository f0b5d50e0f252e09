-- The relays that serve this outbox, as they last said of themselves. For the eyes of operators; nothing depends on it.
create table "@relays" (
    worker         uuid primary key,
    namespace      text not null,
    publisher      text not null,
    host           text not null,
    pid            bigint not null,
    version        text not null,
    started_at     timestamptz not null,
    seen_at        timestamptz not null,
    circuit        text not null check (circuit in ('closed', 'half-open', 'open')),
    circuit_since  timestamptz not null,
    circuit_reason text
);

-- Which relay leads, where only one of many may be active.
create table "@leaders" (
    namespace text primary key,
    worker    uuid not null,
    since     timestamptz not null,
    until     timestamptz not null
);
