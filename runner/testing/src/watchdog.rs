//! A small shell that acts when the process that started it is gone.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Blocks a script on a pipe whose write end only this process holds.
///
/// The kernel closes that end whatever ends the process, so the script sees the end of its input after a return
/// from `main`, a panic, an abort and SIGKILL alike. No other child inherits the end: std opens it close-on-exec.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
}

impl Watchdog {
    /// Runs `script` with `args` as `$1`, `$2`, ...; the script must first read its input to the end.
    ///
    /// It gets a session of its own (where there is no `setsid`, a process group), so that neither Ctrl-C nor the
    /// end of the terminal nor a signal to the test's group ends it before it has done its work.
    pub(crate) fn spawn(script: &str, args: &[&OsStr]) -> io::Result<Self> {
        let started = shell(Command::new("setsid").arg("sh"), script, args, Stdio::piped()).spawn();
        let shell = match started {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                shell(Command::new("sh").process_group(0), script, args, Stdio::piped()).spawn()?
            }
            started => started?,
        };
        Ok(Self { shell })
    }

    /// Lets the script see the end of its input now, and waits until it has done its work.
    pub(crate) fn act(&mut self) {
        drop(self.shell.stdin.take());
        // An error means that the shell was waited for already.
        let _ = self.shell.wait();
    }

    /// Ends the watch without letting the script act.
    pub(crate) fn dismiss(&mut self) {
        // An error means that the shell is gone already, which is what is wanted.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Runs a watchdog's script at once, as if the process it watched over were gone.
pub(crate) fn run(script: &str, args: &[&OsStr]) -> io::Result<()> {
    shell(&mut Command::new("sh"), script, args, Stdio::null()).status().map(drop)
}

fn shell<'a>(command: &'a mut Command, script: &str, args: &[&OsStr], stdin: Stdio) -> &'a mut Command {
    command.args(["-c", script, "watchdog"]).args(args);
    command.current_dir("/").stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null())
}
