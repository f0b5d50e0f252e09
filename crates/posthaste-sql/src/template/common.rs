//! Parts that several statements have in common.

use std::borrow::Cow;

use super::{TemplateError, no_such_part, unbalanced};
use crate::dialect::Dialect;

const MARK: &str = "/*put ";

/// Puts the parts where `/*put name*/` or `/*put alias.name*/` stands. A part names columns only, without an alias.
pub(super) fn put_in<'a>(sql: &'a str, dialect: &dyn Dialect) -> Result<Cow<'a, str>, TemplateError> {
    if !sql.contains(MARK) {
        return Ok(Cow::Borrowed(sql));
    }
    let mut places = sql.split(MARK);
    let mut whole = places.next().unwrap_or_default().to_owned();
    for place in places {
        let (path, after) = place.split_once("*/").ok_or_else(|| unbalanced("put"))?;
        let (alias, name) = path.find('.').map_or(("", path), |dot| path.split_at(dot + 1));
        let part = dialect.part(name);
        let part = part.ok_or_else(|| no_such_part(&format!("{MARK}{path}*/"), name))?;
        whole += &part.trim_end().replace("\"@", &format!("\"@{alias}"));
        whole += after;
    }
    Ok(Cow::Owned(whole))
}
