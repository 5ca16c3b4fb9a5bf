//! Where PostgreSQL's server binaries are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::Error;

/// Names the folder of the binaries where the search would not find them or would find others.
pub(super) const OVERRIDE: &str = "CLEAT_POSTGRES_BIN";

/// Where packages put the binaries; a `*` stands for a version, of which the newest is tried first.
const USUAL: &[&str] = &[
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/libexec/postgresql*",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/opt/homebrew/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/usr/local/bin",
    "/usr/local/pgsql/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
];

/// The binaries of one PostgreSQL version, seen to run.
#[derive(Debug, Clone)]
pub(super) struct Binaries {
    pub(super) initdb: PathBuf,
    pub(super) postgres: PathBuf,
}

impl Binaries {
    /// The first that run: of [`OVERRIDE`], else of `PATH`, else of the usual places, newest first.
    pub(super) fn find() -> Result<Self, Error> {
        let searched = match std::env::var_os(OVERRIDE) {
            Some(folder) => vec![folder.into()],
            None => candidates(&std::env::var_os("PATH").unwrap_or_default(), USUAL),
        };
        match searched.iter().find_map(|folder| Self::of(folder)) {
            Some(found) => Ok(found),
            None => Err(Error::Missing { searched }),
        }
    }

    /// Comes with the server's, or with the client's in a folder of `PATH`.
    pub(super) fn basebackup(&self) -> PathBuf {
        let beside = self.postgres.with_file_name("pg_basebackup");
        if runs(&beside) { beside } else { "pg_basebackup".into() }
    }

    fn of(folder: &Path) -> Option<Self> {
        // Links are followed first, because initdb looks for its siblings beside itself.
        let initdb = folder.join("initdb").canonicalize().ok()?;
        let postgres = initdb.with_file_name("postgres");
        (runs(&initdb) && runs(&postgres)).then_some(Self { initdb, postgres })
    }
}

fn runs(binary: &Path) -> bool {
    let mut command = Command::new(binary);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn candidates(path: &OsStr, usual: &[&str]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for folder in std::env::split_paths(path).chain(usual.iter().flat_map(|pattern| expand(pattern))) {
        if !folder.as_os_str().is_empty() && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// The folders that match a pattern with at most one `*`, highest version first.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let Some((front, back)) = pattern.split_once('*') else {
        return vec![pattern.into()];
    };
    let Some((parent, prefix)) = front.rsplit_once('/') else {
        return Vec::new();
    };
    let names = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut versions: Vec<String> =
        names.filter_map(|name| name.strip_prefix(prefix).map(str::to_owned)).collect();
    versions.sort_by_key(|version| std::cmp::Reverse(numbers(version)));
    versions.into_iter().map(|version| format!("{front}{version}{back}").into()).collect()
}

/// `9.6` as `[9, 6]`, so that it sorts before `[15]`.
fn numbers(version: &str) -> Vec<u32> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_comes_first_and_then_the_newest_version() {
        let root = std::env::temp_dir().join(format!("cleat-binaries-{}", std::process::id()));
        for version in ["9.6", "15", "17", "unrelated"] {
            std::fs::create_dir_all(root.join(format!("pg-{version}"))).unwrap();
        }
        let pattern = format!("{}/pg-*/bin", root.display());
        let found = candidates(OsStr::new("/somewhere/bin:/usr/bin"), &[&pattern, "/usr/bin"]);
        std::fs::remove_dir_all(&root).unwrap();

        let expected = ["pg-17/bin", "pg-15/bin", "pg-9.6/bin", "pg-unrelated/bin"].map(|end| root.join(end));
        assert_eq!(found[..2], [Path::new("/somewhere/bin"), Path::new("/usr/bin")]);
        assert_eq!(found[2..], expected);
    }

    #[test]
    fn a_folder_without_working_binaries_is_passed_over() {
        assert!(Binaries::of(Path::new("/nonexistent")).is_none());
        assert!(Binaries::of(Path::new("/etc")).is_none());
    }

    #[test]
    fn a_machine_without_binaries_is_told_what_to_install() {
        let message = format!("{:?}", Error::Missing { searched: vec!["/a".into(), "/b".into()] });
        assert!(message.contains("looked in: /a, /b\n"), "{message}");
        assert!(message.contains("apt-get install postgresql\n"), "{message}");
    }
}
