//! Whom the server runs as.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::error::{Context, Error};

/// The account that the server's processes run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    /// The account of the test process.
    Own,
    /// An account without privileges, because PostgreSQL does not run as root.
    Other { uid: u32, gid: u32 },
}

impl Account {
    pub(super) fn choose() -> Result<Self, Error> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Own);
        }
        let accounts = std::fs::read_to_string("/etc/passwd").to("read /etc/passwd")?;
        unprivileged(&accounts).ok_or(Error::NoAccount)
    }

    /// Makes `path` belong to this account.
    pub(super) fn take(self, path: &Path) -> Result<(), Error> {
        match self {
            Self::Own => Ok(()),
            Self::Other { uid, gid } => std::os::unix::fs::chown(path, Some(uid), Some(gid))
                .to("hand a folder to PostgreSQL's account"),
        }
    }

    /// Makes `command` run as this account (without the supplementary groups of root: std drops them).
    pub(super) fn run(self, command: &mut Command) -> &mut Command {
        match self {
            Self::Own => command,
            Self::Other { uid, gid } => command.uid(uid).gid(gid),
        }
    }
}

fn unprivileged(accounts: &str) -> Option<Account> {
    ["postgres", "nobody"].iter().find_map(|wanted| {
        accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, uid, gid) = (fields.next()?, fields.nth(1)?, fields.next()?);
            let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
            (name == *wanted && uid != 0).then_some(Account::Other { uid, gid })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533::/:/bin/false\n";

    #[test]
    fn the_postgres_account_is_preferred_to_nobody() {
        let both = format!("{NOBODY}postgres:x:101:104:administrator,,,:/var/lib/postgresql:/bin/bash");
        assert_eq!(unprivileged(&both), Some(Account::Other { uid: 101, gid: 104 }));
        assert_eq!(unprivileged(NOBODY), Some(Account::Other { uid: 65534, gid: 65533 }));
    }

    #[test]
    fn an_account_with_the_powers_of_root_is_never_chosen() {
        assert_eq!(unprivileged("root:x:0:0::/:\npostgres:x:0:0::/:"), None);
    }
}
