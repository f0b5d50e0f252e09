use std::{os::unix::process::CommandExt, path::Path, process::Command};

use nix::unistd::{Gid, Uid, User, chown};

use crate::{Error, Result};

/// The account a server runs under: ourselves, or a named user for servers that refuse to run as root.
#[derive(Debug, Clone)]
pub(crate) enum Account {
    Ourselves,
    Other { name: &'static str, uid: Uid, gid: Gid },
}

impl Account {
    /// Ourselves, unless we are root, whom the server would refuse: then the user of that name.
    pub(crate) fn instead_of_root(name: &'static str) -> Result<Self> {
        if !Uid::effective().is_root() {
            return Ok(Self::Ourselves);
        }
        let user = User::from_name(name).ok().flatten().ok_or(Error::NoAccount(name))?;
        Ok(Self::Other {
            name,
            uid: user.uid,
            gid: user.gid,
        })
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Other { name, .. } => (*name).to_owned(),
            Self::Ourselves => User::from_uid(Uid::effective())
                .ok()
                .flatten()
                .map_or_else(|| Uid::effective().to_string(), |user| user.name),
        }
    }

    /// A command that will run under this account.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        if let Self::Other { uid, gid, .. } = self {
            command.uid(uid.as_raw()).gid(gid.as_raw());
        }
        command
    }

    pub(crate) fn give(&self, path: &Path) -> Result<()> {
        match self {
            Self::Ourselves => Ok(()),
            Self::Other { uid, gid, .. } => chown(path, Some(*uid), Some(*gid))
                .map_err(|errno| Error::io(format!("give {} to {}", path.display(), self.name()))(errno.into())),
        }
    }

    /// Whether the account can enter the directory, through all that lie above it, and write there.
    pub(crate) fn can_use(&self, dir: &Path) -> bool {
        self.command("sh")
            .args(["-c", r#"cd "$1" 2>/dev/null && test -w ."#, "sh"])
            .arg(dir)
            .current_dir("/")
            .status()
            .is_ok_and(|status| status.success())
    }
}
