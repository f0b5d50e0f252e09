create table outbox (
    id bigserial primary key,
    event_id varchar(36) not null,
    event_type varchar(100) not null,
    source varchar(100) not null,
    aggregate_type varchar(100) not null,
    aggregate_id varchar(255) not null,
    payload jsonb not null,
    created_at timestamptz not null default now()
);

create table outbox_cursor (
    id bigserial primary key,
    last_processed_id bigint not null,
    created_at timestamptz not null default now()
);
insert into outbox_cursor (last_processed_id) values (0);
create index idx_outbox_cursor_created_at on outbox_cursor (created_at desc);

create table outbox_failed (
    id bigserial primary key,
    event_id varchar(36) not null,
    event_type varchar(100) not null,
    source varchar(100) not null,
    aggregate_type varchar(100) not null,
    aggregate_id varchar(255) not null,
    payload jsonb not null,
    retry_count int not null default 0,
    last_error text,
    failed_at timestamptz not null default now(),
    next_retry_at timestamptz not null default now()
);
create index idx_outbox_failed_retry on outbox_failed (next_retry_at) where retry_count < 10;

create table event_handled (
    id bigserial primary key,
    aggregate_type varchar(100) not null,
    aggregate_id varchar(255) not null,
    action varchar(100) not null,
    handled_at timestamptz not null default now(),
    constraint uk_event_handled unique (aggregate_type, aggregate_id, action)
);
