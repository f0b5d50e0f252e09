//! Takes a statement apart.

use super::condition::Condition;
use super::placeholder::{ColumnName, Placeholder, StatePlaceholder};
use super::{TemplateError, unbalanced};

/// A piece of a statement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Stands as it is.
    Sql(&'a str),
    /// `"@…"`
    Name(Placeholder<'a>),
    /// `'@…'`
    StateLabel(StatePlaceholder<'a>),
    /// `/*if …*/ … /*else*/ … /*end*/`
    If {
        condition: Condition,
        then: Vec<Piece<'a>>,
        otherwise: Vec<Piece<'a>>,
    },
    /// `/*as …*/ … /*end*/`
    As { column: ColumnName, inside: Vec<Piece<'a>> },
    /// `/*type …*/ … /*end*/`
    Type { column: ColumnName },
}

/// What ended a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Text,
    Else,
    Part,
}

/// Takes a whole statement apart.
pub(super) fn parse(sql: &str) -> Result<Vec<Piece<'_>>, TemplateError> {
    let mut parser = Parser { rest: sql };
    match parser.part()? {
        (pieces, End::Text) => Ok(pieces),
        (_, End::Else) => Err(unbalanced("else")),
        (_, End::Part) => Err(unbalanced("end")),
    }
}

struct Parser<'a> {
    rest: &'a str,
}

/// What begins a piece, and what ends it.
const MARKS: [(&str, &str); 3] = [("/*", "*/"), ("\"@", "\""), ("'@", "'")];

impl<'a> Parser<'a> {
    fn part(&mut self) -> Result<(Vec<Piece<'a>>, End), TemplateError> {
        let mut pieces = Vec::new();
        loop {
            let next = MARKS
                .iter()
                .filter_map(|mark| Some((self.rest.find(mark.0)?, mark)))
                .min();
            let Some((at, (open, close))) = next else {
                pieces.push(Piece::Sql(std::mem::take(&mut self.rest)));
                return Ok((pieces, End::Text));
            };
            pieces.push(Piece::Sql(&self.rest[..at]));
            let inside = &self.rest[at + open.len()..];
            let (text, rest) = inside.split_once(close).ok_or_else(|| unbalanced(inside))?;
            let whole = &self.rest[at..at + open.len() + text.len() + close.len()];
            self.rest = rest;
            match (*open, text.split_once(' ')) {
                ("\"@", _) => pieces.push(Piece::Name(Placeholder::parse(text)?)),
                ("'@", _) => pieces.push(Piece::StateLabel(StatePlaceholder::parse(text)?)),
                (_, None) if text == "else" => return Ok((pieces, End::Else)),
                (_, None) if text == "end" => return Ok((pieces, End::Part)),
                (_, Some(("if", condition))) => pieces.push(self.either(text, Condition::parse(condition)?)?),
                (_, Some(("as", role))) => {
                    let column = ColumnName::parse(whole, role)?;
                    let inside = self.enclosed(text)?;
                    pieces.push(Piece::As { column, inside });
                }
                (_, Some(("type", role))) => {
                    let column = ColumnName::parse(whole, role)?;
                    self.enclosed(text)?;
                    pieces.push(Piece::Type { column });
                }
                // A comment like any other.
                _ => pieces.push(Piece::Sql(whole)),
            }
        }
    }

    fn either(&mut self, begin: &str, condition: Condition) -> Result<Piece<'a>, TemplateError> {
        let (then, end) = self.part()?;
        let otherwise = match end {
            End::Else => self.enclosed(begin)?,
            End::Part => Vec::new(),
            End::Text => return Err(unbalanced(begin)),
        };
        Ok(Piece::If {
            condition,
            then,
            otherwise,
        })
    }

    /// What stands up to the matching end.
    fn enclosed(&mut self, begin: &str) -> Result<Vec<Piece<'a>>, TemplateError> {
        match self.part()? {
            (inside, End::Part) => Ok(inside),
            _ => Err(unbalanced(begin)),
        }
    }
}
