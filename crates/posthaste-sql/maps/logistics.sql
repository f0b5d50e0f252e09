create table outbox_events (
    id uuid primary key,
    aggregate_type varchar(50) not null,
    aggregate_id uuid not null,
    event_type varchar(100) not null,
    payload jsonb not null,
    occurred_at timestamptz default now(),
    status varchar(20) default 'PENDING',
    retry_count int default 0,
    next_attempt_at timestamptz default now(),
    last_error text null,
    processed_at timestamptz null
);
create index outbox_events_claim on outbox_events (status, occurred_at, id);
create index idx_outbox_poll on outbox_events (status, next_attempt_at asc);
create index idx_outbox_aggregate on outbox_events (aggregate_type, aggregate_id);
