//! Every statement for every builtin map is accepted by the server.

use posthaste_core::RelayStore;
use posthaste_core::store::SchemaStore;
use posthaste_sql::table::{BUILTIN_MAPS, Strategy};
use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

use super::place::Place;

/// The donation service's tables as they would be on PostgreSQL.
pub const DONATION: &str = "
    create table donation_outbox (
        id bigint generated always as identity primary key, version bigint default 0,
        request_id varchar(50) not null unique, event_type varchar(50) not null, payload text not null,
        content_hash varchar(64) not null, status varchar(20) not null default 'PENDING', locked_by varchar(100),
        locked_at timestamp, retry_count int default 0, max_retries int default 3, last_error varchar(500),
        next_retry_at timestamp, created_at timestamp, updated_at timestamp
    );
    create index idx_pending_poll on donation_outbox (status, next_retry_at, id);
    create table donation_dlq (
        id bigint generated always as identity primary key, original_id bigint not null,
        request_id varchar(50) not null, event_type varchar(50) not null, payload text not null, reason varchar(500),
        created_at timestamp
    );";

/// Proves A1, B1, E1.
#[tokio::test]
async fn every_statement_for_every_builtin_map_is_prepared_by_the_server() {
    for builtin in BUILTIN_MAPS {
        let map = builtin.map().unwrap();
        if map.strategy() == Strategy::Log {
            continue;
        }
        // MySQL's own words in its table are said in PostgreSQL's.
        let ddl = if builtin.ddl.contains("auto_increment") {
            DONATION
        } else {
            builtin.ddl
        };
        let place = Place::new(map, ddl, 1).await;
        place.store.check().await.unwrap();
        assert!(place.store.migrations().is_empty(), "the tables are their owner's");
        for (name, sql) in place.store.statements() {
            let prepared = place
                .store
                .pool()
                .prepare(AssertSqlSafe(sql.clone()).into_sql_str())
                .await;
            prepared.unwrap_or_else(|error| panic!("{} {name}: {error}\n{sql}", builtin.name));
        }
        place.dispose().await;
    }
}
