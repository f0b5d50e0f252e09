use proc_macro2::{Group, Punct, Spacing, TokenStream, TokenTree};
use syn::{Attribute, Expr, Lit, Meta, parse::Parser};

/// What stands above an item.
#[derive(Default)]
pub(super) struct Heading {
    pub(super) documentation: String,
    /// Where `Proves` was found.
    pub(super) line: usize,
    pub(super) is_test: bool,
}

impl Heading {
    /// Takes up one attribute, by its brackets. A line of documentation is an attribute too.
    pub(super) fn add(&mut self, brackets: Option<Group>) {
        let Some(brackets) = brackets else { return };
        let line = brackets.span_open().start().line;
        let hash = Punct::new('#', Spacing::Alone);
        let tokens = TokenStream::from_iter([TokenTree::Punct(hash), TokenTree::Group(brackets)]);
        // What does not parse stands in the body of a macro.
        for attribute in Attribute::parse_outer.parse2(tokens).unwrap_or_default() {
            self.is_test |= attribute
                .path()
                .segments
                .last()
                .is_some_and(|last| last.ident == "test");
            if let Some(text) = documentation(&attribute) {
                if text.contains("Proves ") {
                    self.line = line;
                }
                self.documentation.push_str(text.trim());
                self.documentation.push('\n');
            }
        }
    }
}

fn documentation(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    let Expr::Lit(value) = &pair.value else { return None };
    let Lit::Str(text) = &value.lit else { return None };
    pair.path.is_ident("doc").then(|| text.value())
}
