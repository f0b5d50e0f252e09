use std::{collections::HashSet, fmt, iter::Peekable};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree, token_stream};

use super::{heading::Heading, id::Id, sentence};

/// A test and what it says that it proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proof {
    pub(super) test: String,
    pub(super) ids: Vec<Id>,
    pub(super) line: usize,
}

/// What is wrong with a `Proves` comment, and in which line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    line: usize,
    what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

/// Finds the tests in a source file that say what they prove.
///
/// In a file of the conformance suite every function counts as a test, elsewhere also those that `on_every_database!`
/// makes tests of. The walk goes over tokens and not over a syntax
/// tree, because the functions in `proptest! { … }` are none to a Rust parser.
pub(super) fn proofs(source: &str, is_suite: bool) -> Result<Vec<Proof>, Vec<Problem>> {
    if !source.contains("Proves ") {
        return Ok(Vec::new());
    }
    let tokens: TokenStream = source.parse().map_err(|error: proc_macro2::LexError| {
        vec![Problem {
            line: error.span().start().line,
            what: "cannot be read as Rust".to_owned(),
        }]
    })?;
    let mut walk = Walk {
        is_suite,
        listed: listed(source),
        proofs: Vec::new(),
        problems: Vec::new(),
    };
    walk.tokens(tokens);
    if walk.problems.is_empty() {
        Ok(walk.proofs)
    } else {
        Err(walk.problems)
    }
}

/// The functions that a macro of the same file makes tests of.
fn listed(source: &str) -> HashSet<String> {
    let lists = source
        .split("on_every_database!(")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    lists
        .flat_map(|list| list.split(','))
        .map(|name| name.trim().to_owned())
        .collect()
}

struct Walk {
    is_suite: bool,
    listed: HashSet<String>,
    proofs: Vec<Proof>,
    problems: Vec<Problem>,
}

impl Walk {
    fn tokens(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        let mut heading = Heading::default();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => heading.add(attribute(&mut tokens)),
                TokenTree::Ident(word) if word == "fn" => {
                    if let Some(TokenTree::Ident(name)) = tokens.peek() {
                        let name = name.to_string();
                        self.function(&std::mem::take(&mut heading), name);
                    }
                }
                TokenTree::Group(group) => {
                    if group.delimiter() == Delimiter::Brace {
                        self.not_a_test(&std::mem::take(&mut heading));
                    }
                    self.tokens(group.stream());
                }
                TokenTree::Punct(punct) if matches!(punct.as_char(), ';' | ',') => {
                    self.not_a_test(&std::mem::take(&mut heading));
                }
                _ => {}
            }
        }
    }

    fn function(&mut self, heading: &Heading, test: String) {
        if !self.is_suite && !heading.is_test && !self.listed.contains(&test) {
            return self.not_a_test(heading);
        }
        match sentence::ids(&heading.documentation) {
            Ok(ids) if ids.is_empty() => {}
            Ok(ids) => self.proofs.push(Proof {
                test,
                ids,
                line: heading.line,
            }),
            Err(what) => self.problems.push(Problem {
                line: heading.line,
                what,
            }),
        }
    }

    /// Ordinary prose may begin with "Proves that", so only a proper list is a slip here.
    fn not_a_test(&mut self, heading: &Heading) {
        if sentence::ids(&heading.documentation).is_ok_and(|ids| !ids.is_empty()) {
            let what = "`Proves` stands here on something that is not a test".to_owned();
            self.problems.push(Problem {
                line: heading.line,
                what,
            });
        }
    }
}

/// The brackets after `#`; none for the attributes of the file itself (`#![…]`).
fn attribute(tokens: &mut Peekable<token_stream::IntoIter>) -> Option<Group> {
    match tokens.next()? {
        TokenTree::Group(brackets) => Some(brackets),
        TokenTree::Punct(punct) if punct.as_char() == '!' => {
            tokens.next();
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str, is_suite: bool) -> Vec<String> {
        match proofs(source, is_suite) {
            Ok(proofs) => proofs
                .iter()
                .map(|Proof { test, ids, line }| {
                    format!(
                        "{line} {test} {}",
                        ids.iter().map(Id::to_string).collect::<Vec<_>>().join(" ")
                    )
                })
                .collect(),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn tests_of_every_kind_are_found() {
        let source = r"
            //! Proves nothing: this is about the file.
            #![allow(dead_code)]

            /// Proves B1.
            #[test]
            fn plain() { let f: fn(u8) = |_| (); }

            mod inner {
                /// A story first.
                ///
                /// Proves B2,
                /// B3 and pitfall 4.
                #[cfg(unix)]
                #[tokio::test(start_paused = true)]
                async fn on_tokio() -> Result<(), Error> { Ok(()) }
            }

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(64))]

                /// Proves B10.
                #[test]
                fn delays_are_capped(attempts in 1..=u32::MAX, base in delays()) { assert!(true); }
            }

            /// Proves nothing, and is no test.
            fn helper() {}
        ";
        assert_eq!(
            found(source, false),
            ["5 plain B1", "12 on_tokio B2 B3 P4", "22 delays_are_capped B10"]
        );
    }

    #[test]
    fn functions_that_a_macro_makes_tests_of_need_no_attribute() {
        let source = "on_every_database!(\n    it_stops,\n    it_starts\n);\n/// Proves B12.\nfn it_stops() {}";
        assert_eq!(found(source, false), ["5 it_stops B12"]);
    }

    #[test]
    fn cases_of_the_suite_need_no_attribute() {
        let case = "/// Proves B7.\npub async fn an_expired_lease_is_reclaimed<S: Store>(store: &S) {}";
        assert_eq!(found(case, true), ["1 an_expired_lease_is_reclaimed B7"]);
        assert_eq!(
            found(case, false),
            ["1: `Proves` stands here on something that is not a test"]
        );
    }

    #[test]
    fn slips_are_reported_with_their_line() {
        let source =
            "#[test]\nfn a() {}\n\n/// Words.\n/// Proves Q.\n#[test]\nfn b() {}\n\n/// Proves B1.\nstruct S { x: u8 }";
        assert_eq!(
            found(source, false),
            [
                "5: after `Proves`: `Q` is not an id such as B7",
                "9: `Proves` stands here on something that is not a test"
            ]
        );
        assert_eq!(found("// Proves \nfn (", false), ["2: cannot be read as Rust"]);
    }
}
