-- The shop's tables.

create table if not exists product (
    id    bigint primary key,
    name  text   not null,
    stock bigint not null check (stock >= 0)
);

create table if not exists product_like (
    product_id bigint not null references product,
    user_id    bigint not null,
    primary key (product_id, user_id)
);

create table if not exists product_view (
    id         bigint generated always as identity primary key,
    product_id bigint not null references product,
    user_id    bigint not null
);

create table if not exists orders (
    id      uuid    primary key,
    user_id bigint  not null,
    paid    boolean not null default false
);

create table if not exists order_item (
    order_id   uuid   not null references orders,
    product_id bigint not null references product,
    quantity   bigint not null check (quantity > 0),
    primary key (order_id, product_id)
);

-- The outbox is a log: rows are written once, a cursor says how far they were delivered, failures stand apart.

create table if not exists outbox (
    id             bigserial    primary key,
    event_id       varchar(36)  not null,
    event_type     varchar(100) not null,
    source         varchar(100) not null,
    aggregate_type varchar(100) not null,
    aggregate_id   varchar(255) not null,
    payload        jsonb        not null,
    created_at     timestamptz  not null default now()
);

create table if not exists outbox_cursor (
    id                bigserial   primary key,
    last_processed_id bigint      not null,
    created_at        timestamptz not null default now()
);
create index if not exists idx_outbox_cursor_created_at on outbox_cursor (created_at desc);
insert into outbox_cursor (last_processed_id) select 0 where not exists (select from outbox_cursor);

create table if not exists outbox_failed (
    id             bigserial    primary key,
    event_id       varchar(36)  not null,
    event_type     varchar(100) not null,
    source         varchar(100) not null,
    aggregate_type varchar(100) not null,
    aggregate_id   varchar(255) not null,
    payload        jsonb        not null,
    retry_count    int          not null default 0,
    last_error     text,
    failed_at      timestamptz  not null default now(),
    next_retry_at  timestamptz  not null default now()
);
create index if not exists idx_outbox_failed_retry on outbox_failed (next_retry_at) where retry_count < 10;

-- What the consumer has handled, by effect.
create table if not exists event_handled (
    id             bigserial    primary key,
    aggregate_type varchar(100) not null,
    aggregate_id   varchar(255) not null,
    action         varchar(100) not null,
    handled_at     timestamptz  not null default now(),
    constraint uk_event_handled unique (aggregate_type, aggregate_id, action)
);

-- What the consumer keeps. In a larger shop these stand in a database of their own.

create table if not exists product_statistic (
    product_id  bigint primary key,
    like_count  bigint not null default 0,
    sales_count bigint not null default 0,
    view_count  bigint not null default 0
);

-- Who likes what, as the consumer knows it: makes the counting of likes idempotent by nature.
create table if not exists counted_like (
    product_id bigint not null,
    user_id    bigint not null,
    primary key (product_id, user_id)
);
