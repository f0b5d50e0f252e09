create table outbox (
    id uuid primary key,
    aggregate_type varchar(255) not null,
    aggregate_id uuid not null,
    event_type varchar(255) not null,
    payload text not null,
    status varchar(50) not null,
    created_at timestamp not null,
    sent_at timestamp null,
    error_message text null
);
create index idx_outbox_status_created on outbox (status, created_at);
create index idx_outbox_aggregate on outbox (aggregate_id);
