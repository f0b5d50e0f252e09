-- The server commits after every statement that changes the schema, so each of them can be run again after a failure.
-- Which migrations were applied.
create table if not exists "@migrations" (
    version    bigint primary key,
    name       varchar(100) not null,
    applied_at datetime(6) not null default current_timestamp(6)
) engine = InnoDB default character set utf8mb4;

-- The outbox: rows carry their own state and lease. All times are UTC. Names that differ in spaces at their ends are
-- different names: MariaDB and MySQL each have a collation for that, and read one of these comments each.
create table if not exists "@outbox" (
    id              char(36) character set ascii collate ascii_bin not null primary key,
    seq             bigint not null auto_increment unique key,
    namespace       varchar(512) not null,
    topic           varchar(512) not null,
    ordering_key    varchar(512),
    tenant          varchar(512),
    dedupe_key      varchar(512),
    event_type      varchar(512),
    source          varchar(512),
    aggregate_type  varchar(512),
    aggregate_id    varchar(512),
    content_type    varchar(512) not null,
    payload         longblob not null,
    headers         json not null,
    content_hash    binary(32),
    status          varchar(16) character set ascii collate ascii_bin not null
        check (status in ('pending', 'processing', 'delivered', 'dead')),
    attempts        int not null,
    next_attempt_at datetime(6) not null,
    locked_by       char(36) character set ascii collate ascii_bin,
    lease_token     char(36) character set ascii collate ascii_bin,
    locked_until    datetime(6),
    last_error      longtext,
    created_at      datetime(6) not null,
    updated_at      datetime(6) not null,
    delivered_at    datetime(6),
    -- In the order of a claim: the scan of a state stops at its limit. With what is counted, so that counting reads no row.
    key outbox_claim (namespace, status, seq, attempts, next_attempt_at, created_at),
    key outbox_delivered (delivered_at)
) engine = InnoDB default character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- Dedupe keys, apart from the rows: a key must stay taken after its row was purged. Bytes: compared as they are, by any
-- connection.
create table if not exists "@dedupe" (
    namespace  varbinary(512) not null,
    topic      varbinary(512) not null,
    dedupe_key varbinary(512) not null,
    message_id char(36) character set ascii collate ascii_bin not null,
    held_by    char(36) character set ascii collate ascii_bin not null,
    expires_at datetime(6) not null,
    primary key (namespace, topic, dedupe_key),
    key outbox_dedupe_expiry (expires_at)
) engine = InnoDB;

-- What each consumer has handled.
create table if not exists "@inbox" (
    consumer   varbinary(512) not null,
    `key`      varbinary(2048) not null,
    handled_at datetime(6) not null,
    primary key (consumer, `key`),
    key inbox_handled (consumer, handled_at)
) engine = InnoDB;
