-- The columns that Debezium's outbox event router expects.
create table outbox (
    id            uuid primary key,
    aggregatetype varchar(255) not null,
    aggregateid   varchar(255) not null,
    type          varchar(255) not null,
    payload       text not null
);
create publication bench_outbox for table outbox with (publish = 'insert');
