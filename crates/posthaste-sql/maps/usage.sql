create table modkit_outbox_events (
    id uuid primary key,
    namespace text not null,
    topic text not null,
    tenant_id uuid null,
    dedupe_key text null,
    payload jsonb not null,
    status text not null,
    attempts int not null default 0,
    next_attempt_at timestamptz not null default now(),
    locked_by uuid null,
    locked_until timestamptz null,
    last_error text null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);
create index modkit_outbox_events_claim on modkit_outbox_events (status, created_at, id);
create index modkit_outbox_events_due on modkit_outbox_events (status, next_attempt_at);
create index modkit_outbox_events_leases on modkit_outbox_events (locked_until);
create unique index modkit_outbox_events_dedupe on modkit_outbox_events (namespace, topic, dedupe_key)
    where dedupe_key is not null;
