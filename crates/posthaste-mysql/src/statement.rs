//! Statements with numbered parameters, which MySQL does not have.

use std::convert::Infallible;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use posthaste_core::MessageId;
use posthaste_sql::enqueue::{Query as AnyQuery, Value as AnyValue};
use posthaste_sql::table::{Kind, Role, TableMap};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{Arguments, AssertSqlSafe, Executor, MySql, MySqlConnection};

/// One finished statement. Its parameters are `$1`, `$2` and so on, as often as they are needed and in any order; one that is
/// a list stands for all its members, as in `id in ($1)`.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    parts: Arc<[Part]>,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Sql(String),
    Parameter(usize),
}

/// A value for a parameter.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Number(Option<i64>),
    Text(Option<String>),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    /// Values that belong together, as a member of a list.
    Row(Vec<Value>),
}

impl Statement {
    pub(crate) fn new(sql: &str) -> Self {
        let parts = parts(sql).into();
        Self { parts }
    }

    /// For readers and for snapshots.
    pub(crate) fn text(&self) -> String {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Sql(sql) => sql.clone(),
                Part::Parameter(number) => format!("${number}"),
            })
            .collect()
    }

    /// Puts values in. Safe because the text is a file of this crate, finished with quoted identifiers only.
    fn query(&self, values: &[Value]) -> sqlx::Result<Query<'static, MySql, MySqlArguments>> {
        let mut arguments = MySqlArguments::default();
        let sql = self.put(values, &mut arguments)?;
        Ok(sqlx::query_with(AssertSqlSafe(sql), arguments))
    }

    /// The same for any driver.
    pub(crate) fn for_any_driver(&self, values: &[Value]) -> AnyQuery<'static, AnyValue<'static>> {
        let mut arguments = Vec::new();
        let sql = self.put(values, &mut arguments).unwrap_or_else(|never| match never {});
        AnyQuery::new(&sql.into(), arguments)
    }

    fn put<A: Sink>(&self, values: &[Value], arguments: &mut A) -> Result<String, A::Error> {
        let mut sql = String::new();
        for part in self.parts.iter() {
            match part {
                Part::Sql(text) => sql.push_str(text),
                Part::Parameter(number) => values[number - 1].put(&mut sql, arguments)?,
            }
        }
        Ok(sql)
    }

    pub(crate) async fn fetch_all(&self, conn: &mut MySqlConnection, values: &[Value]) -> sqlx::Result<Vec<MySqlRow>> {
        conn.fetch_all(self.query(values)?).await
    }

    pub(crate) async fn fetch_one(&self, conn: &mut MySqlConnection, values: &[Value]) -> sqlx::Result<MySqlRow> {
        conn.fetch_one(self.query(values)?).await
    }

    /// Returns how many rows were changed.
    pub(crate) async fn execute(&self, conn: &mut MySqlConnection, values: &[Value]) -> sqlx::Result<u64> {
        Ok(conn.execute(self.query(values)?).await?.rows_affected())
    }
}

impl Value {
    fn put<A: Sink>(&self, sql: &mut String, arguments: &mut A) -> Result<(), A::Error> {
        match self {
            Self::List(members) => return put_list(members, sql, arguments),
            Self::Row(members) => return put_row(members, sql, arguments),
            Self::Number(number) => arguments.number(*number)?,
            Self::Text(text) => arguments.text(text.as_deref())?,
            Self::Bytes(bytes) => arguments.bytes(bytes)?,
        }
        sql.push('?');
        Ok(())
    }

    pub(crate) fn flag(flag: bool) -> Self {
        Self::Number(Some(i64::from(flag)))
    }

    pub(crate) fn optional(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }

    pub(crate) fn texts<T: ToString>(texts: &[T]) -> Self {
        Self::List(texts.iter().map(|text| Self::Text(Some(text.to_string()))).collect())
    }

    /// An id as its column keeps it.
    pub(crate) fn id(id: MessageId, map: &TableMap) -> Self {
        match (map.column(Role::Id).map(|column| column.kind), id) {
            (Some(Kind::UuidBytes), MessageId::Uuid(uuid)) => Self::Bytes(uuid.as_bytes().to_vec()),
            (_, MessageId::Number(number)) => Self::Number(Some(number)),
            // No row can have it; the server would take the digits that it begins with for a number.
            (Some(Kind::Integer), _) => Self::Number(None),
            (_, id) => Self::Text(Some(id.to_string())),
        }
    }

    /// Ids in the order in which rows are locked, which is the same for all.
    pub(crate) fn ids(ids: &[MessageId], map: &TableMap) -> Self {
        Self::List(ids.iter().map(|id| Self::id(*id, map)).collect())
    }
}

/// What takes the values of a statement, in the order of its question marks.
trait Sink {
    type Error;

    fn number(&mut self, number: Option<i64>) -> Result<(), Self::Error>;
    fn text(&mut self, text: Option<&str>) -> Result<(), Self::Error>;
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;
}

impl Sink for MySqlArguments {
    type Error = sqlx::Error;

    fn number(&mut self, number: Option<i64>) -> sqlx::Result<()> {
        self.add(number).map_err(sqlx::Error::Encode)
    }

    fn text(&mut self, text: Option<&str>) -> sqlx::Result<()> {
        self.add(text).map_err(sqlx::Error::Encode)
    }

    fn bytes(&mut self, bytes: &[u8]) -> sqlx::Result<()> {
        self.add(bytes).map_err(sqlx::Error::Encode)
    }
}

impl Sink for Vec<AnyValue<'static>> {
    type Error = Infallible;

    fn number(&mut self, number: Option<i64>) -> Result<(), Infallible> {
        self.push(AnyValue::Integer(number));
        Ok(())
    }

    fn text(&mut self, text: Option<&str>) -> Result<(), Infallible> {
        self.push(AnyValue::Text(text.map(|text| text.to_owned().into())));
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.push(AnyValue::Bytes(bytes.to_vec().into()));
        Ok(())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(Some(i64::from(number)))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

/// A list's length is rounded up to a power of two, by repeating its last member, so that few statements are prepared
/// for the many lengths there are.
fn put_list<A: Sink>(members: &[Value], sql: &mut String, arguments: &mut A) -> Result<(), A::Error> {
    let Some(last) = members.last() else {
        sql.push_str("null");
        return Ok(());
    };
    let repeated = members.len().next_power_of_two() - members.len();
    for (place, member) in members.iter().chain(std::iter::repeat_n(last, repeated)).enumerate() {
        if place > 0 {
            sql.push_str(", ");
        }
        member.put(sql, arguments)?;
    }
    Ok(())
}

fn put_row<A: Sink>(members: &[Value], sql: &mut String, arguments: &mut A) -> Result<(), A::Error> {
    for (place, member) in members.iter().enumerate() {
        sql.push_str(if place == 0 { "(" } else { ", " });
        member.put(sql, arguments)?;
    }
    sql.push(')');
    Ok(())
}

/// Takes a statement apart at its parameters. What stands between quotes or in a comment is none.
fn parts(sql: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut rest = sql;
    while let Some(next) = rest.chars().next() {
        let end = match next {
            '`' | '\'' => rest[1..].find(next).map_or(rest.len(), |at| at + 2),
            '-' if rest.starts_with("-- ") => rest.find('\n').unwrap_or(rest.len()),
            '$' => {
                let digits = rest[1..].bytes().take_while(u8::is_ascii_digit).count();
                if let Ok(number) = rest[1..=digits].parse() {
                    parts.push(Part::Sql(std::mem::take(&mut text)));
                    parts.push(Part::Parameter(number));
                    rest = &rest[1 + digits..];
                    continue;
                }
                1
            }
            other => other.len_utf8(),
        };
        text.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    parts.push(Part::Sql(text));
    parts
}

/// A time as the statements read it.
pub(crate) fn epoch_micros(time: DateTime<Utc>) -> i64 {
    time.timestamp_micros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(sql: &str, values: &[Value]) -> String {
        let query = Statement::new(sql).query(values).unwrap();
        sqlx::Execute::sql(query).as_str().to_owned()
    }

    #[test]
    fn parameters_may_be_repeated_and_lists_are_spread() {
        let sql = "select $2 where $1 in ($2, $1)";
        assert_eq!(finished(sql, &[1_u32.into(), "x".into()]), "select ? where ? in (?, ?)");
        let three = Value::texts(&["a", "b", "c"]);
        assert_eq!(finished("in ($1)", &[three]), "in (?, ?, ?, ?)");
        assert_eq!(finished("in ($1)", &[Value::List(vec![])]), "in (null)");
        let row = |n: u32| Value::Row(vec![n.into(), "x".into()]);
        let rows = Value::List(vec![row(1), row(2)]);
        assert_eq!(finished("in ($1)", &[rows]), "in ((?, ?), (?, ?))");
    }

    #[test]
    fn what_stands_in_quotes_or_comments_is_no_parameter() {
        let sql = "-- $1 it's\nselect `a``$1`, 'it''s $1', '$.x', $1 - 1";
        assert_eq!(
            finished(sql, &[7_u32.into()]),
            "-- $1 it's\nselect `a``$1`, 'it''s $1', '$.x', ? - 1"
        );
        assert_eq!(Statement::new(sql).text(), sql);
    }
}
