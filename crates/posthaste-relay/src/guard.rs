//! What may stop a message on its way: a lease that is over, an open circuit, another leader, a verdict that the database
//! refuses.

pub(crate) mod blame;
pub(crate) mod calls;
pub(crate) mod changes;
pub(crate) mod circuit;
pub(crate) mod clock;
pub(crate) mod destinations;
pub(crate) mod gate;
pub(crate) mod in_flight;
pub(crate) mod lanes;
pub(crate) mod lead;
pub(crate) mod lease;
pub(crate) mod refusals;
pub(crate) mod silence;
pub(crate) mod timed;
pub(crate) mod unclaimable;
