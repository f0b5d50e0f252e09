mod tree;

pub use tree::MySqlTree;

/// A MySQL server of our own. Dropping it stops it and removes its data.
///
/// `root` needs no password, from this machine.
pub type MySqlServer = crate::mariadb::Server<MySqlTree>;
