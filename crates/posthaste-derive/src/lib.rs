//! `#[derive(Event)]`: the one place where an application says how its events are named on the wire.

mod attributes;
mod expand;
mod mapping;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Maps events to type names, aggregates and payloads, all at compile time.
///
/// Put it on the enum that lists the events of a bounded context. Every variant wraps one plain type of the domain,
/// which itself knows nothing of topics, type names or bytes:
///
/// ```
/// # use posthaste_derive::Event;
/// # #[derive(serde::Serialize)]
/// # struct OrderCreated { order_id: u64 }
/// # struct StockDepleted { sku: String }
/// # mod json { pub fn depleted(event: &super::StockDepleted) -> &str { &event.sku } }
/// # fn product(event: &StockDepleted) -> &str { &event.sku }
/// #[derive(Event)]
/// # #[event(crate = posthaste_core)]
/// #[event(aggregate = "Order", id = order_id)]
/// enum ShopEvent {
///     #[event(type = "acme.order.created.v1")]
///     OrderCreated(OrderCreated),
///     #[event(type = "acme.stock.depleted.v1", aggregate = "Product", id_with = product, payload = json::depleted)]
///     StockDepleted(StockDepleted),
/// }
/// # fn main() { assert_eq!(ShopEvent::TYPE_NAMES.len(), 2); }
/// ```
///
/// # Keys of `#[event(...)]`
/// - `type`: `{company}.{domain}.{action}.v{n}`. Required on every variant; no two variants share one.
/// - `aggregate`: kind of thing the event is about. Required.
/// - `id`: the field of the wrapped type that holds the aggregate's id, or `id_with`: a function from `&Inner` to
///   anything that has `to_string`. One of them is required. Events with equal ids are delivered in order.
/// - `payload`: a function from `&Inner` to anything that can be serialised. Without it the wrapped type is serialised
///   itself.
/// - `topic`: where the event goes. Defaults to `{domain}-events`.
/// - `crate`: where `posthaste_core` is found. Defaults to `::posthaste::core`.
///
/// `aggregate`, `id`, `id_with` and `topic` on the enum itself hold for all variants that do not say otherwise.
///
/// On a struct the same keys stand above the struct and mean the struct itself.
///
/// # What is generated
/// - `Event` for the type, so that it can be enqueued;
/// - `DecodeEvent`, so that a consumer can register a handler by the type alone, if serde can read the wrapped types, no
///   event has a `payload` of its own and the type has no parameters;
/// - `TYPE_NAMES`, the list of all type names in the order of the variants;
/// - `From<Inner>` for every variant whose inner type no other variant wraps, unless the enum has type parameters.
#[proc_macro_derive(Event, attributes(event))]
pub fn derive_event(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
