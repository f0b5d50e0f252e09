-- The table of shards of Posthaste's own log, as far as its seats go.
create table log_shards (
    shard        integer primary key,
    generation   integer not null default 1,
    state        text not null default '',
    position     bigint not null default 0,
    hi           bigint not null default 0,
    epoch        bigint not null default 0,
    owner        uuid,
    leased_until timestamptz,
    updated_at   timestamptz not null default now()
);
