create table donation_outbox (
    id bigint auto_increment primary key,
    version bigint default 0,
    request_id varchar(50) not null unique,
    event_type varchar(50) not null,
    payload text not null,
    content_hash varchar(64) not null,
    status varchar(20) not null default 'PENDING',
    locked_by varchar(100),
    locked_at datetime,
    retry_count int default 0,
    max_retries int default 3,
    last_error varchar(500),
    next_retry_at datetime,
    created_at datetime,
    updated_at datetime,
    index idx_pending_poll (status, next_retry_at, id),
    index idx_locked (locked_by, locked_at)
);

create table donation_dlq (
    id bigint auto_increment primary key,
    original_id bigint not null,
    request_id varchar(50) not null,
    event_type varchar(50) not null,
    payload text not null,
    reason varchar(500),
    created_at datetime,
    index idx_request_id (request_id)
);
