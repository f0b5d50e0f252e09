//! Which rights a statement needs, for the one who grants them: the server names the table and not the right.

use std::error::Error;
use std::fmt;

/// The server refused a statement for want of rights.
#[derive(Debug)]
pub(crate) struct Denied {
    /// What the server said.
    said: String,
    needed: Vec<&'static str>,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; grant the user {} on it", self.said, list(&self.needed))
    }
}

impl Error for Denied {}

/// The same error, and if it is one of rights on a table, with those that the statement needs there.
pub(crate) fn explained(error: sqlx::Error, sql: &str) -> sqlx::Error {
    let denied = error.as_database_error().and_then(|database| {
        let table = database.message().strip_prefix("permission denied for table ")?;
        let needed = needed(sql, table);
        (database.code().as_deref() == Some("42501") && !needed.is_empty()).then(|| Denied {
            said: database.message().to_owned(),
            needed,
        })
    });
    match denied {
        Some(denied) => sqlx::Error::AnyDriverError(Box::new(denied)),
        None => error,
    }
}

fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The rights on a table that a finished statement needs, by the words before its name.
fn needed(sql: &str, table: &str) -> Vec<&'static str> {
    let name = format!("\"{}\"", table.replace('"', "\"\""));
    let sql = without_comments(sql);
    let mut needed = Vec::new();
    let mut add = |right| {
        if !needed.contains(&right) {
            needed.push(right);
        }
    };
    for (at, _) in sql.match_indices(&name) {
        // A column may have the name of a table; no verb stands before it.
        let before = without_schema(&sql[..at]).trim_end().to_ascii_lowercase();
        if before.ends_with("insert into") {
            add("insert");
            if sql.contains("do update") {
                add("update");
            }
        } else if before.ends_with("update") {
            add("update");
        } else if before.ends_with("delete from") {
            add("delete");
        } else if before.ends_with("from") || before.ends_with("join") {
            if sql.contains("for update") {
                add("update");
            }
        } else {
            continue;
        }
        // To find rows, or to return them.
        add("select");
    }
    needed.sort_by_key(|right| {
        ["select", "insert", "update", "delete"]
            .iter()
            .position(|known| known == right)
    });
    needed
}

/// The text before `"schema".`, if that is how it ends.
fn without_schema(before: &str) -> &str {
    let schema = before.strip_suffix("\".").and_then(|quoted| quoted.rfind('"'));
    schema.map_or(before, |at| &before[..at])
}

fn without_comments(sql: &str) -> String {
    let lines = sql.lines().map(|line| line.split("-- ").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_before_a_table_tell_its_rights() {
        let sql = r#"-- from "x"."relays"
            with gone as (delete from "x"."relays" where old), seen as (select 1 from "x"."outbox" o for update)
            insert into "x"."leaders" (n) select "leaders" from seen on conflict (n) do update set n = 1"#;
        assert_eq!(needed(sql, "relays"), ["select", "delete"]);
        assert_eq!(needed(sql, "outbox"), ["select", "update"]);
        assert_eq!(needed(sql, "leaders"), ["select", "insert", "update"]);
        assert_eq!(needed(sql, "other"), [""; 0]);
        assert_eq!(needed(r#"select 1 from "outbox""#, "outbox"), ["select"]);
    }

    #[test]
    fn rights_are_listed_as_people_do() {
        assert_eq!(list(&["select"]), "select");
        assert_eq!(list(&["select", "insert", "update"]), "select, insert and update");
    }
}
