-- The service's own data. Its outbox is core's maps/order-service.sql, as it was before Posthaste came.
create table orders (
    id uuid primary key,
    customer text not null,
    cents bigint not null check (cents > 0)
);
