mod binaries;
mod options;
mod server;

pub use binaries::MariaDbBinaries;
pub use options::MariaDbOptions;
pub use server::MariaDbServer;
