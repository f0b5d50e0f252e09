//! A shop on Posthaste.

fn main() {}
