//! What is there beside the rows of a drain.

use sqlx::{Connection, PgConnection};

use crate::server::Database;

/// What is there beside the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    /// A snapshot from before the rows, so that the server can remove nothing later.
    Snapshot,
    /// Dead letters in the log.
    DeadLetters,
    /// Messages in the log that wait for their time.
    Waiting,
    /// A transaction that has written to the log before.
    OpenTransaction,
}

impl Beside {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Nothing => "clean",
            Self::Snapshot => "snapshot held",
            Self::DeadLetters => "1,000 dead letters",
            Self::Waiting => "1,000 messages that wait",
            Self::OpenTransaction => "one transaction open",
        }
    }

    /// Puts it there, on a connection that has to stay open.
    pub(crate) async fn begin(self, database: &Database) -> anyhow::Result<PgConnection> {
        let mut conn = database.connect().await?;
        let statements: &[&'static str] = match self {
            Self::Nothing => &[],
            Self::Snapshot => &["begin isolation level repeatable read", "select count(*) from pg_class"],
            Self::DeadLetters => &[include_str!("../queries/beside/dead_letters.sql")],
            Self::Waiting => &[include_str!("../queries/beside/waiting.sql")],
            Self::OpenTransaction => &["begin", include_str!("../queries/beside/open.sql")],
        };
        for statement in statements {
            sqlx::query(*statement).execute(&mut conn).await?;
        }
        Ok(conn)
    }
}

/// Ends what [`Beside::begin`] has left open.
pub(crate) async fn end(conn: PgConnection) -> anyhow::Result<()> {
    Ok(conn.close().await?)
}
