//! A terminal that a test looks at.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// How long a program may take to show something.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that runs on a terminal: standard output and standard error lead to it.
pub struct Terminal {
    child: Child,
    pieces: Receiver<Vec<u8>>,
    shown: String,
}

impl Terminal {
    /// Starts a program.
    pub fn run(mut command: Command) -> Self {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&near).unwrap();
        unlockpt(&near).unwrap();
        let name = ptsname(&near, Vec::new()).unwrap().into_string().unwrap();
        let far = OpenOptions::new().read(true).write(true).open(PathBuf::from(name)).unwrap();
        let copy = |far: &File| -> OwnedFd { far.as_fd().try_clone_to_owned().unwrap() };
        command.stdout(copy(&far)).stderr(copy(&far));
        let child = command.spawn().unwrap();
        // The terminal ends when nobody has its far side any more.
        drop((command, far));
        let (sender, pieces) = channel();
        std::thread::spawn(move || {
            let (mut near, mut buffer) = (File::from(near), [0; 4096]);
            while let Ok(count @ 1..) = near.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, pieces, shown: String::new() }
    }

    /// Waits until a text is shown.
    pub fn until(&mut self, text: &str) {
        let begun = Instant::now();
        while !self.shown.contains(text) {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            match self.pieces.recv_timeout(left) {
                Ok(piece) => self.shown.push_str(&String::from_utf8_lossy(&piece)),
                Err(RecvTimeoutError::Timeout) => panic!("{text:?} is not shown: {:?}", self.shown),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended without {text:?}: {:?}", self.shown),
            }
        }
    }

    /// Waits for its end, and gives all that was shown.
    pub fn end(mut self) -> (ExitStatus, String) {
        while let Ok(piece) = self.pieces.recv_timeout(PATIENCE) {
            self.shown.push_str(&String::from_utf8_lossy(&piece));
        }
        (self.child.wait().unwrap(), std::mem::take(&mut self.shown))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
