//! What an application says about its events: which handler, and what counts as the same effect.

mod error;
mod handler;
mod once;
mod received;
mod routes;

pub use self::error::HandlerError;
pub use self::handler::Handler;
pub(crate) use self::once::EffectKey;
pub use self::once::Once;
pub(crate) use self::received::Origin;
pub use self::received::{Payload, Raw, Received};
pub(crate) use self::routes::{Call, Prepared, Routes, decode_event, decode_payload};
