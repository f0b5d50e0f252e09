//! Statements as whole SQL files, finished with the names of a table map.
//!
//! A file stays valid SQL, so that a DBA can open it and an editor can colour it:
//!
//! - `"@outbox"` stands for the quoted table, with its schema; `"@schema"` for the schema alone;
//! - `"@topic"` stands for the quoted column of that role;
//! - `'@pending'` stands for the table's word for that state, as a literal; `'@schema'` for the schema as one;
//! - `/*if tenant*/ … /*else*/ … /*end*/` keeps the first part if the table has that role, else the second (which may be
//!   absent). These parts do not nest.

use thiserror::Error;

use crate::table::{Identifier, TableMap};

/// A statement that cannot be finished.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// The map has nothing for a placeholder.
    #[error("the table map has no {kind} for `{name}`, which this statement needs")]
    Unknown {
        /// `table or column`, or `state`.
        kind: &'static str,
        /// The placeholder.
        name: String,
    },
    /// `if`, `else` and `end` do not match.
    #[error("the optional part that begins with `if {role}` has no end, or holds another one")]
    Unbalanced {
        /// The role it asks for.
        role: String,
    },
}

/// Puts a map's names into a statement. `quote` is the database's quote for identifiers.
pub fn render(sql: &str, map: &TableMap, quote: char) -> Result<String, TemplateError> {
    let chosen = choose_parts(sql, map)?;
    let named = replace(&chosen, "\"@", '"', |name| identifier(name, map, quote))?;
    replace(&named, "'@", '\'', |name| literal(name, map))
}

fn literal(name: &str, map: &TableMap) -> Result<String, TemplateError> {
    let text = if name == "schema" {
        map.schema().map(Identifier::as_str)
    } else {
        map.word(name)
    };
    let text = text.ok_or(TemplateError::Unknown {
        kind: "state",
        name: name.to_owned(),
    })?;
    Ok(format!("'{}'", text.replace('\'', "''")))
}

fn identifier(name: &str, map: &TableMap, quote: char) -> Result<String, TemplateError> {
    if let Some(table) = map.table(name) {
        let schema = table
            .schema
            .as_ref()
            .map(|schema| schema.quoted(quote) + ".")
            .unwrap_or_default();
        return Ok(schema + &table.name.quoted(quote));
    }
    let plain = if name == "schema" {
        map.schema()
    } else {
        map.column(name)
    };
    plain
        .map(|identifier| identifier.quoted(quote))
        .ok_or(TemplateError::Unknown {
            kind: "table or column",
            name: name.to_owned(),
        })
}

fn choose_parts(sql: &str, map: &TableMap) -> Result<String, TemplateError> {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once("/*if ") {
        out.push_str(before);
        let (role, after) = after.split_once("*/").unwrap_or((after, ""));
        let unbalanced = || TemplateError::Unbalanced { role: role.to_owned() };
        let (body, after) = after.split_once("/*end*/").ok_or_else(unbalanced)?;
        if body.contains("/*if ") {
            return Err(unbalanced());
        }
        let (present, absent) = body.split_once("/*else*/").unwrap_or((body, ""));
        out.push_str(if map.column(role).is_some() {
            present.trim()
        } else {
            absent.trim()
        });
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn replace(
    sql: &str,
    open: &str,
    close: char,
    mut value: impl FnMut(&str) -> Result<String, TemplateError>,
) -> Result<String, TemplateError> {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once(open) {
        let (name, after) = after.split_once(close).unwrap_or((after, ""));
        out.push_str(before);
        out.push_str(&value(name)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_words_are_put_in_quoted() {
        let map = TableMap::in_schema(r#"we"ird"#).unwrap();
        let sql = render(
            r#"select "@topic" from "@outbox" where "@status" = '@pending'"#,
            &map,
            '"',
        )
        .unwrap();
        assert_eq!(
            sql,
            r#"select "topic" from "we""ird"."outbox" where "status" = 'pending'"#
        );
    }

    #[test]
    fn optional_parts_follow_the_roles_a_table_has() {
        let sql =
            r#"select /*if tenant*/ "@tenant" /*else*/ null /*end*/ from "@outbox"/*if tenant*/ where true/*end*/"#;
        let map = TableMap::with_prefix("p_").unwrap();
        assert_eq!(
            render(sql, &map, '"').unwrap(),
            r#"select "tenant" from "p_outbox"where true"#
        );
        assert_eq!(
            render(sql, &map.without("tenant"), '"').unwrap(),
            r#"select null from "p_outbox""#
        );
    }

    #[test]
    fn a_statement_that_needs_more_than_the_map_has_is_an_error() {
        let map = TableMap::with_prefix("p_").unwrap();
        let missing = render(r#"select "@colour""#, &map, '"').unwrap_err();
        assert!(missing.to_string().contains("`colour`"));
        assert!(render("/*if tenant*/ x", &map, '"').is_err());
        assert!(render("/*if tenant*/ /*if topic*/ /*end*/ /*end*/", &map, '"').is_err());
        assert!(render("'@lost'", &map, '"').is_err());
    }
}
