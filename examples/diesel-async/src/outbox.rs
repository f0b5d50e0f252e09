//! The whole recipe: how diesel-async runs a statement of the outbox.

use diesel::QueryableByName;
use diesel::pg::Pg;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use posthaste::StoreError;
use posthaste::postgres::EnqueueExecutor;
use posthaste::sql::enqueue::{AnswerRow, Argument, Query};

/// A connection of diesel-async, in a transaction, on which an outbox can write.
pub struct Diesel<'c>(pub &'c mut AsyncPgConnection);

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    place: i64,
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = Bool)]
    is_new: bool,
}

impl EnqueueExecutor for Diesel<'_> {
    async fn fetch(&mut self, query: Query<'_>) -> Result<Vec<AnswerRow>, StoreError> {
        let mut statement = diesel::sql_query(query.sql.as_ref()).into_boxed::<Pg>();
        for argument in query.arguments {
            statement = match argument {
                Argument::Texts(texts) => statement.bind::<Array<Nullable<Text>>, _>(texts),
                Argument::Bytes(bytes) => statement.bind::<Array<Binary>, _>(bytes),
                // Diesel knows UUIDs by a feature of its own; the statement casts the texts.
                Argument::Uuids(ids) => {
                    let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
                    statement.bind::<Array<Text>, _>(ids)
                }
                Argument::Times(times) => statement.bind::<Array<Nullable<Timestamptz>>, _>(times),
                Argument::Text(text) => statement.bind::<Nullable<Text>, _>(text),
                Argument::Blob(bytes) => statement.bind::<Binary, _>(bytes),
                Argument::Time(time) => statement.bind::<Nullable<Timestamptz>, _>(time),
                Argument::Integer(number) => statement.bind::<BigInt, _>(number),
            };
        }
        let rows: Vec<Row> = statement.load(self.0).await.map_err(StoreError::other)?;
        let answer = |row: Row| AnswerRow {
            place: row.place,
            id: row.id,
            is_new: row.is_new,
        };
        Ok(rows.into_iter().map(answer).collect())
    }
}
