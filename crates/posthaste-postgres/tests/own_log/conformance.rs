//! The log passes the conformance suite, by what it has: with one shard, and with several, whose keys are read side by side.

/// With one shard, as it is made.
mod whole {
    type Whole = crate::backend::NativeLog<1>;

    posthaste_testkit::conformance_suite!(Whole);

    #[test]
    fn some_cases_are_not_for_it() {
        insta::assert_snapshot!(posthaste_testkit::suite::left_out::<Whole>());
    }
}

/// With three more, in a second generation.
mod sharded {
    type Sharded = crate::backend::NativeLog<3>;

    posthaste_testkit::conformance_suite!(Sharded);
}
