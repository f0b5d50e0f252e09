-- The relays that serve this outbox, as they last said of themselves. For the eyes of operators; nothing depends on it.
create table if not exists "@relays" (
    worker         char(36) character set ascii collate ascii_bin not null primary key,
    namespace      varchar(512) not null,
    publisher      varchar(512) not null,
    host           varchar(512) not null,
    pid            bigint not null,
    version        varchar(100) not null,
    started_at     datetime(6) not null,
    seen_at        datetime(6) not null,
    circuit        varchar(16) not null check (circuit in ('closed', 'half-open', 'open')),
    circuit_since  datetime(6) not null,
    circuit_reason longtext
) engine = InnoDB default character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- Which relay leads, where only one of many may be active.
create table if not exists "@leaders" (
    namespace varchar(512) not null primary key,
    worker    char(36) character set ascii collate ascii_bin not null,
    since     datetime(6) not null,
    until     datetime(6) not null
) engine = InnoDB default character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;
