//! The generated code.

use std::collections::HashMap;

use posthaste_core::type_name::TypeName;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, Path, Result};

use crate::attributes::Id;
use crate::mapping::{Mapping, Mappings};

pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Mappings { krate, events } = Mappings::read(input)?;
    let name = &input.ident;
    let (generics, arguments, conditions) = input.generics.split_for_impl();
    let patterns: Vec<_> = events.iter().map(|event| &event.pattern).collect();
    let bindings: Vec<_> = events.iter().map(|event| &event.binding).collect();
    let type_names: Vec<_> = events.iter().map(|event| &event.type_name).collect();
    let aggregates = events.iter().map(|event| &event.aggregate);
    let ids = events.iter().map(id);
    let payloads = events.iter().map(|event| payload(event, &krate));
    let topics = events.iter().map(topic);
    let conversions = conversions(input, &events);
    let decoding = decoding(input, &events, &krate);
    Ok(quote! {
        #[automatically_derived]
        impl #generics #krate::Event for #name #arguments #conditions {
            fn type_name(&self) -> &'static str {
                match self { #(#patterns => #type_names,)* }
            }

            fn aggregate_type(&self) -> &'static str {
                match self { #(#patterns => #aggregates,)* }
            }

            fn aggregate_id(&self) -> ::std::string::String {
                match self { #(#bindings => #ids,)* }
            }

            fn payload(
                &self,
            ) -> ::std::result::Result<::std::vec::Vec<::std::primitive::u8>, #krate::event::EncodeError> {
                match self { #(#bindings => #payloads,)* }
            }

            fn topic(&self) -> ::std::string::String {
                ::std::string::String::from(match self { #(#patterns => #topics,)* })
            }
        }

        #[automatically_derived]
        #[allow(dead_code)]
        impl #generics #name #arguments #conditions {
            /// The type names of these events, in the order in which the events are listed.
            pub const TYPE_NAMES: &'static [&'static str] = &[#(#type_names),*];
        }

        #conversions

        #decoding
    })
}

// The spans below make the compiler's own complaints (no such field, not `Display`, not `Serialize`) point at what the
// user wrote.

fn id(event: &Mapping) -> TokenStream {
    match &event.id {
        Id::Field(field) => quote_spanned!(field.span()=> ::std::string::ToString::to_string(&__event.#field)),
        Id::With(function) => quote_spanned!(function.span()=> ::std::string::ToString::to_string(&#function(__event))),
    }
}

fn payload(event: &Mapping, krate: &Path) -> TokenStream {
    if let Some(function) = &event.payload {
        quote_spanned!(function.span()=> #krate::event::json(&#function(__event)))
    } else {
        quote_spanned!(event.span=> #krate::event::json(__event))
    }
}

fn topic(event: &Mapping) -> String {
    let type_name = event.type_name.value();
    match &event.topic {
        Some(topic) => topic.value(),
        None => TypeName::parse(&type_name).map_or_else(|_| type_name.clone(), |name| name.default_topic()),
    }
}

/// `DecodeEvent`, for types that serde can read. That they can is a condition and not asked for: many are only written.
/// (Conditions on types without parameters hold or do not compile, but for those with a lifetime of their own.)
fn decoding(input: &DeriveInput, events: &[Mapping], krate: &Path) -> TokenStream {
    // The form that a function gives to the payload is known to the application only.
    if !input.generics.params.is_empty() || events.iter().any(|event| event.payload.is_some()) {
        return TokenStream::new();
    }
    let name = &input.ident;
    let inner = |event: &Mapping| Some(event.wraps.as_ref()?.1.to_token_stream());
    let inners = events.iter().map(|event| inner(event).unwrap_or_else(|| quote!(#name)));
    let type_names: Vec<_> = events.iter().map(|event| &event.type_name).collect();
    let topics = events.iter().map(topic);
    let wrap = |event: &Mapping| event.wraps.as_ref().map(|(variant, _)| quote!(.map(Self::#variant)));
    let wraps = events.iter().map(wrap);
    quote! {
        #[automatically_derived]
        impl #krate::event::DecodeEvent for #name
        where
            #(for<'__de> #inners: #krate::event::__Deserialize<'__de>,)*
        {
            const EVENTS: &'static [#krate::event::EventName] = &[
                #(#krate::event::EventName { type_name: #type_names, topic: #topics },)*
            ];

            fn decode(
                type_name: &::std::primitive::str,
                payload: &[::std::primitive::u8],
            ) -> ::std::result::Result<Self, #krate::event::DecodeError> {
                match type_name {
                    #(#type_names => #krate::event::from_json(payload)#wraps,)*
                    other => ::std::result::Result::Err(#krate::event::DecodeError::UnknownType(
                        ::std::string::String::from(other),
                    )),
                }
            }
        }
    }
}

/// `From<Inner>` where the inner type says which variant is meant. With type parameters that cannot be known: two
/// parameters may be the same type.
fn conversions(input: &DeriveInput, events: &[Mapping]) -> TokenStream {
    if input.generics.type_params().next().is_some() {
        return TokenStream::new();
    }
    let name = &input.ident;
    let (generics, arguments, conditions) = input.generics.split_for_impl();
    let wrapped = || events.iter().filter_map(|event| event.wraps.as_ref());
    let mut uses: HashMap<String, usize> = HashMap::new();
    for (_, inner) in wrapped() {
        *uses.entry(inner.to_token_stream().to_string()).or_default() += 1;
    }
    wrapped()
        .filter(|(_, inner)| uses[&inner.to_token_stream().to_string()] == 1)
        .map(|(variant, inner)| {
            quote! {
                #[automatically_derived]
                impl #generics ::std::convert::From<#inner> for #name #arguments #conditions {
                    fn from(event: #inner) -> Self {
                        Self::#variant(event)
                    }
                }
            }
        })
        .collect()
}
