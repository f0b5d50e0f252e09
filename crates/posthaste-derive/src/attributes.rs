//! Reading `#[event(...)]`.

use posthaste_core::type_name::TypeName;
use syn::meta::ParseNestedMeta;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, ExprPath, LitStr, Member, Path, Result};

/// What the attributes of one place say.
#[derive(Default)]
pub struct Attributes {
    pub krate: Option<Path>,
    pub type_name: Option<LitStr>,
    pub aggregate: Option<LitStr>,
    pub id: Option<Id>,
    pub payload: Option<ExprPath>,
    pub topic: Option<LitStr>,
}

/// Where an aggregate id comes from.
#[derive(Clone)]
pub enum Id {
    Field(Member),
    With(ExprPath),
}

/// Where an attribute stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Struct,
    Enum,
    Variant,
}

impl Attributes {
    pub fn read(attributes: &[Attribute], place: Place) -> Result<Self> {
        let mut read = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("event")) {
            attribute.parse_nested_meta(|meta| read.key(&meta, place))?;
        }
        Ok(read)
    }

    fn key(&mut self, meta: &ParseNestedMeta, place: Place) -> Result<()> {
        let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        match key.as_str() {
            "type" | "payload" if place == Place::Enum => {
                Err(meta.error(format!("`{key}` differs from event to event; write it on the variants")))
            }
            "crate" if place == Place::Variant => Err(meta.error("`crate` is said once, above the enum")),
            "crate" => set(&mut self.krate, meta, Path::parse_mod_style),
            "type" => set(&mut self.type_name, meta, type_name),
            "aggregate" => set(&mut self.aggregate, meta, name),
            "topic" => set(&mut self.topic, meta, name),
            "id" => set(&mut self.id, meta, field),
            "id_with" => set(&mut self.id, meta, |input| input.parse().map(Id::With)),
            "payload" => set(&mut self.payload, meta, ExprPath::parse),
            _ => Err(meta.error("unknown key; use type, aggregate, id, id_with, payload, topic or crate")),
        }
    }
}

fn set<T>(
    slot: &mut Option<T>,
    meta: &ParseNestedMeta,
    parse: impl FnOnce(ParseStream<'_>) -> Result<T>,
) -> Result<()> {
    if slot.is_some() {
        // `id` and `id_with` share a slot, hence "this".
        return Err(meta.error("this was said before in the same place; keep one of the two"));
    }
    *slot = Some(parse(meta.value()?)?);
    Ok(())
}

fn type_name(input: ParseStream<'_>) -> Result<LitStr> {
    let literal: LitStr = input.parse()?;
    match TypeName::parse(&literal.value()) {
        Ok(_) => Ok(literal),
        Err(error) => Err(Error::new(literal.span(), error)),
    }
}

/// A name that the outbox would refuse as empty.
fn name(input: ParseStream<'_>) -> Result<LitStr> {
    let literal: LitStr = input.parse()?;
    if literal.value().trim().is_empty() {
        return Err(Error::new(
            literal.span(),
            "this is empty; give it a name or leave it out",
        ));
    }
    Ok(literal)
}

fn field(input: ParseStream<'_>) -> Result<Id> {
    if input.peek(LitStr) {
        return Err(input.error("write the field's name without quotes: id = order_id"));
    }
    input.parse().map(Id::Field)
}
