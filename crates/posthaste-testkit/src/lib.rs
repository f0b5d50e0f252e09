//! Tests of stores: the conformance [`suite`], which every store passes; see [`Backend`] for how to run it on another one.
//! Tests of publishers: the suite of [`publishing`], run on each [`Counterpart`].
//!
//! What tests of applications need is [`posthaste_testing`], and is here too.

#![expect(clippy::missing_panics_doc, reason = "to panic is what assertions and cases are for")]

mod backend;
mod counterpart;
mod ddl;
mod faulty_store;
mod fit;
pub mod publishing;
pub mod suite;
mod table;

pub use backend::{Backend, Fixture, Trouble};
pub use counterpart::{Ability, Counterpart, Disturbance};
pub use ddl::{ddl, everything, id_literal};
pub use faulty_store::FaultyStore;
pub use fit::fit;
pub use posthaste_testing::*;
pub use table::{Need, Table};

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
