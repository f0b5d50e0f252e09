-- The shop's own tables. The outbox and the inbox are Posthaste's, created by its migrations.

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
