//! The whole recipe: how sea-orm runs a statement of the outbox.

use posthaste::StoreError;
use posthaste::postgres::EnqueueExecutor;
use posthaste::sql::enqueue::{AnswerRow, Argument, Query};
use sea_orm::sea_query::{ArrayType, Value};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbErr, QueryResult, Statement};

/// A transaction of sea-orm on which an outbox can write.
pub struct SeaOrm<'t>(pub &'t DatabaseTransaction);

impl EnqueueExecutor for SeaOrm<'_> {
    async fn fetch(&mut self, query: Query<'_>) -> Result<Vec<AnswerRow>, StoreError> {
        let values = query.arguments.into_iter().map(value);
        let statement = Statement::from_sql_and_values(self.0.get_database_backend(), query.sql.as_ref(), values);
        let rows = self.0.query_all_raw(statement).await.map_err(StoreError::other)?;
        let rows: Result<_, DbErr> = rows.iter().map(answer).collect();
        rows.map_err(StoreError::other)
    }
}

fn value(argument: Argument<'_>) -> Value {
    match argument {
        Argument::Bytes(bytes) => {
            let bytes = bytes.into_iter().map(|bytes| Value::Bytes(Some(bytes.to_vec())));
            Value::Array(ArrayType::Bytes, Some(Box::new(bytes.collect())))
        }
        Argument::Blob(bytes) => Value::Bytes(Some(bytes.to_vec())),
        // Arrays of sea-orm have no nulls. The statement casts the text.
        other => Value::String(other.to_text()),
    }
}

fn answer(row: &QueryResult) -> Result<AnswerRow, DbErr> {
    Ok(AnswerRow {
        place: row.try_get("", "place")?,
        id: row.try_get("", "id")?,
        is_new: row.try_get("", "is_new")?,
    })
}
