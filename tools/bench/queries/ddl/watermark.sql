-- A log that is read up to the oldest transaction that may still write.
create table events (
    xid          xid8 not null default pg_current_xact_id(),
    id           bigint generated always as identity,
    event_id     uuid not null,
    aggregate_id text not null,
    payload      bytea not null,
    primary key (xid, id)
);
create table reader (xid xid8 not null, id bigint not null);
insert into reader values ('0', 0);
