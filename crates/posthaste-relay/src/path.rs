//! The way of a message: claimed, dispatched, published, settled.

pub(crate) mod bypass;
pub(crate) mod claim;
pub(crate) mod depth;
pub(crate) mod desk;
pub(crate) mod dispatch;
pub(crate) mod failpoint;
pub(crate) mod in_place;
pub(crate) mod publication;
pub(crate) mod settle;
