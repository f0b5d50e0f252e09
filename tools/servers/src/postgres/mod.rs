mod binaries;
mod cluster;
mod options;
mod server;

pub use binaries::PostgresBinaries;
pub use options::PostgresOptions;
pub use server::{PostgresServer, StopMode};
