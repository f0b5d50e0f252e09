//! What happens beside the path of a record.

pub(crate) mod instrument;
pub(crate) mod janitor;
