use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::{Error, Result, account::Account};

/// A directory that belongs to one server and goes with it.
#[derive(Debug)]
pub(crate) struct Home(PathBuf);

impl Home {
    /// Makes a new directory in `parent`, for `account` to use and with a path of at most `longest` bytes.
    ///
    /// Falls back to the system's temporary directory where `parent` will not do: below a home directory that others
    /// may not enter, for instance, or too deep down for the path of a socket.
    pub(crate) fn create(parent: &Path, prefix: &str, account: &Account, longest: usize) -> Result<Self> {
        let temporary = env::temp_dir();
        for place in [parent, &temporary] {
            let home = Self::create_in(place, prefix, account)?;
            if home.0.as_os_str().len() <= longest && account.can_use(&home.0) {
                return Ok(home);
            }
        }
        Err(Error::Unreachable {
            user: account.name(),
            asked: parent.to_owned(),
            fallback: temporary,
        })
    }

    fn create_in(place: &Path, prefix: &str, account: &Account) -> Result<Self> {
        let failed = || Error::io(format!("create a directory in {}", place.display()));
        fs::create_dir_all(place).map_err(failed())?;
        let place = place.canonicalize().map_err(failed())?;
        let directory = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(place)
            .map_err(failed())?;
        let home = Self(directory.keep());
        account.give(&home.0)?;
        Ok(home)
    }

    /// Becomes the owner of a directory that another process made.
    pub(crate) fn take_over(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What cannot be removed is litter, not a failure of the test that used it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_goes_with_its_owner_and_leaves_its_neighbours() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("neighbour"), "").unwrap();

        let home = Home::create(parent.path(), "s-", &Account::Ourselves, 100).unwrap();
        let path = home.path().to_owned();
        assert!(path.starts_with(parent.path()) && path.is_dir());
        drop(home);

        assert!(!path.exists());
        assert!(parent.path().join("neighbour").exists());
    }

    #[test]
    fn too_deep_a_directory_is_replaced_by_a_temporary_one() {
        let parent = tempfile::tempdir().unwrap();
        let deep = parent.path().join("d".repeat(120));
        let home = Home::create(&deep, "s-", &Account::Ourselves, 90).unwrap();
        assert_eq!(home.path().parent(), Some(env::temp_dir().as_path()));
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 0, "the first try is cleaned up");
    }

    #[test]
    fn a_directory_the_account_cannot_enter_is_replaced_by_a_temporary_one() {
        use std::os::unix::fs::PermissionsExt;

        let Ok(account @ Account::Other { .. }) = Account::instead_of_root("nobody") else {
            return; // only root can be kept out by somebody else's rights
        };
        let closed = tempfile::tempdir().unwrap();
        fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let home = Home::create(closed.path(), "s-", &account, 90).unwrap();
        assert_eq!(home.path().parent(), Some(env::temp_dir().as_path()));
    }
}
