//! The folder of a control plane or cluster: configuration, data and logs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cleat_testing::folder::Folder;

/// Ends what works in a folder, keeps its logs if a test did not pass, and removes it.
const REMOVE: &str = include_str!("remove.sh");

#[derive(Debug)]
pub(crate) struct Home(Folder);

impl Home {
    pub(crate) fn create() -> Result<Self> {
        let home = Self(Folder::create("cleat-e2e", REMOVE)?);
        for folder in ["data", "etc", "log", "running"] {
            std::fs::create_dir(home.path(folder)).with_context(|| format!("cannot create {folder}"))?;
        }
        let kept = home.kept();
        std::fs::write(home.path("kept"), kept.to_string_lossy().into_owned() + "\n")?;
        Ok(home)
    }

    /// A name that nothing else on this machine has.
    pub(crate) fn name(&self) -> String {
        let folder = self.0.path().file_name().unwrap_or_default();
        format!("cleat-e2e-{}", folder.to_string_lossy())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Where the logs will be if a test does not pass.
    fn kept(&self) -> PathBuf {
        let folder = std::env::var_os("E2E_LOGS")
            .map_or_else(|| std::env::temp_dir().join("cleat-e2e-logs"), PathBuf::from);
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        folder.join(self.name())
    }

    /// Says that `test` runs here.
    pub(crate) fn running(&self, test: &str) -> Result<Running> {
        let mark = self.path("running").join(test);
        std::fs::write(&mark, "").with_context(|| format!("cannot write {}", mark.display()))?;
        Ok(Running { mark: Some(mark), kept: self.kept() })
    }
}

/// A test that runs. Unless it [passes](Running::passed), the logs are kept.
#[derive(Debug)]
#[must_use = "a test says that it has passed"]
pub struct Running {
    mark: Option<PathBuf>,
    kept: PathBuf,
}

impl Running {
    /// A test on something that is not ours, whose logs are not ours to keep.
    pub(crate) fn elsewhere() -> Self {
        Self { mark: None, kept: PathBuf::new() }
    }

    /// Says that it has passed.
    pub fn passed(mut self) {
        if let Some(mark) = self.mark.take() {
            // What cannot be removed keeps logs that nobody needs.
            let _ = std::fs::remove_file(mark);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.mark.is_some() {
            crate::progress(format_args!("the logs of all components will be in {}", self.kept.display()));
        }
    }
}
