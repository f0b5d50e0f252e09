mod binaries;
mod options;
mod programs;
mod server;

pub use binaries::MariaDbBinaries;
pub use options::MariaDbOptions;
pub(crate) use programs::{InstallCommand, Programs};
pub use server::MariaDbServer;
pub(crate) use server::Server;
