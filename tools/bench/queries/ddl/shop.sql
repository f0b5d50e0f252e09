create table orders (
    id       bigint generated always as identity primary key,
    customer bigint not null,
    total    bigint not null,
    placed   timestamptz not null default now()
);
create index orders_of_customer on orders (customer);
create table stock (item bigint primary key, quantity bigint not null);
insert into stock select item, 1000000 from generate_series(0, 999) as item;
create table payments (
    id       bigint generated always as identity primary key,
    order_id bigint not null references orders (id),
    amount   bigint not null
);
