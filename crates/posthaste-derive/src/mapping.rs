//! From the item to a complete mapping of each event, or to every complaint about it at once.

use std::collections::HashMap;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, ExprPath, Fields, LitStr, Path, Result, Type, Variant};

use crate::attributes::{Attributes, Id, Place};

/// The events of an item.
pub struct Mappings {
    pub krate: Path,
    pub events: Vec<Mapping>,
}

/// How one event is mapped.
pub struct Mapping {
    /// Matches the event.
    pub pattern: TokenStream,
    /// Matches the event and binds it to `__event`.
    pub binding: TokenStream,
    /// Where the domain type is named, for errors about it.
    pub span: Span,
    /// The variant and the type it wraps; none for a struct.
    pub wraps: Option<(syn::Ident, Type)>,
    pub type_name: LitStr,
    pub aggregate: LitStr,
    pub id: Id,
    pub payload: Option<ExprPath>,
    pub topic: Option<LitStr>,
}

impl Mappings {
    pub fn read(input: &DeriveInput) -> Result<Self> {
        let (krate, events) = match &input.data {
            Data::Struct(_) => {
                let item = Attributes::read(&input.attrs, Place::Struct)?;
                (item.krate.clone(), vec![of_struct(input, item)?])
            }
            Data::Enum(data) => {
                let item = Attributes::read(&input.attrs, Place::Enum)?;
                (item.krate.clone(), of_enum(input, data, &item)?)
            }
            Data::Union(_) => {
                return Err(Error::new_spanned(
                    &input.ident,
                    "a union cannot be an event; use an enum",
                ));
            }
        };
        Ok(Self {
            krate: krate.map_or_else(|| syn::parse_str("::posthaste::core"), Ok)?,
            events,
        })
    }
}

fn of_struct(input: &DeriveInput, item: Attributes) -> Result<Mapping> {
    let name = &input.ident;
    Ok(Mapping {
        pattern: quote!(Self { .. }),
        binding: quote!(__event),
        span: name.span(),
        wraps: None,
        type_name: required(item.type_name, name, TYPE)?,
        aggregate: required(item.aggregate, name, AGGREGATE)?,
        id: required(item.id, name, ID)?,
        payload: item.payload,
        topic: item.topic,
    })
}

fn of_enum(input: &DeriveInput, data: &DataEnum, item: &Attributes) -> Result<Vec<Mapping>> {
    if data.variants.is_empty() {
        return Err(Error::new_spanned(
            &input.ident,
            "an event enum lists at least one event",
        ));
    }
    let mut events = Vec::new();
    let mut complaints = Vec::new();
    for variant in &data.variants {
        match of_variant(variant, item) {
            Ok(event) => events.push(event),
            Err(error) => complaints.push(error),
        }
    }
    complaints.extend(repeated_type_names(&events));
    let all = complaints.into_iter().reduce(|mut all, error| {
        all.combine(error);
        all
    });
    all.map_or(Ok(events), Err)
}

fn of_variant(variant: &Variant, item: &Attributes) -> Result<Mapping> {
    let own = Attributes::read(&variant.attrs, Place::Variant)?;
    let inner = wrapped_type(variant)?;
    let name = &variant.ident;
    Ok(Mapping {
        pattern: quote!(Self::#name(..)),
        binding: quote!(Self::#name(__event)),
        span: inner.span(),
        wraps: Some((name.clone(), inner.clone())),
        type_name: required(own.type_name, name, TYPE)?,
        aggregate: required(own.aggregate.or_else(|| item.aggregate.clone()), name, AGGREGATE)?,
        id: required(own.id.or_else(|| item.id.clone()), name, ID)?,
        payload: own.payload,
        topic: own.topic.or_else(|| item.topic.clone()),
    })
}

fn wrapped_type(variant: &Variant) -> Result<&Type> {
    if let Fields::Unnamed(fields) = &variant.fields
        && let (1, Some(field)) = (fields.unnamed.len(), fields.unnamed.first())
    {
        return Ok(&field.ty);
    }
    let name = &variant.ident;
    Err(Error::new_spanned(
        variant_without_attributes(variant),
        format!("a variant wraps exactly one type of the domain; write {name}({name}) and put the fields there"),
    ))
}

fn variant_without_attributes(variant: &Variant) -> TokenStream {
    let (name, fields) = (&variant.ident, &variant.fields);
    quote!(#name #fields)
}

const TYPE: &str = r#"type = "acme.order.created.v1""#;
const AGGREGATE: &str = r#"aggregate = "Order""#;
const ID: &str = "id = order_id";

fn required<T>(value: Option<T>, event: &impl ToTokens, example: &str) -> Result<T> {
    value.ok_or_else(|| {
        let key = example.split(' ').next().unwrap_or_default();
        let event_name = event.to_token_stream();
        let message = format!("event `{event_name}` has no `{key}`; add one, such as #[event({example})]");
        Error::new_spanned(event, message)
    })
}

fn repeated_type_names(events: &[Mapping]) -> Vec<Error> {
    let mut seen = HashMap::new();
    let mut errors = Vec::new();
    for Mapping { type_name, .. } in events {
        let name = type_name.value();
        if let Some(first) = seen.insert(name.clone(), type_name) {
            let message = format!("`{name}` already names another event; consumers could not tell them apart");
            let mut error = Error::new(type_name.span(), message);
            error.combine(Error::new(first.span(), "the other event with this type name"));
            errors.push(error);
        }
    }
    errors
}
