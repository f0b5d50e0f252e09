//! What does not compile, and how the compiler says so.

/// Proves C1, C3.
///
/// A variant without a mapping (`no_type_name`), a malformed type name and a type name given twice are refused by the
/// compiler; so are the other mistakes shown in `tests/ui`. `TRYBUILD=overwrite` renews the expected messages.
#[test]
fn mistakes_are_refused_with_a_remedy() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
