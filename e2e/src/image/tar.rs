//! Writing tar archives, as much of them as images need: files and folders of root's, without times.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Headers and contents are padded to this.
const BLOCK: usize = 512;

pub(super) struct Archive<W> {
    to: W,
    folders: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, folders: BTreeSet::new() }
    }

    /// A folder, unless it is there already.
    pub(super) fn folder(&mut self, name: &str, mode: u32) -> io::Result<()> {
        let name = name.trim_matches('/');
        if self.folders.insert(name.to_owned()) {
            let header = header(&format!("{name}/"), mode, 0, b'5')?;
            self.to.write_all(&header)?;
        }
        Ok(())
    }

    pub(super) fn bytes(&mut self, name: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let size = u64::try_from(bytes.len()).map_err(io::Error::other)?;
        self.entry(name, mode, size, bytes)
    }

    pub(super) fn file(&mut self, name: &str, mode: u32, path: &Path) -> io::Result<()> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = File::open(path).map_err(named)?;
        let size = file.metadata().map_err(named)?.len();
        self.entry(name, mode, size, file)
    }

    fn entry(&mut self, name: &str, mode: u32, size: u64, content: impl Read) -> io::Result<()> {
        let name = name.trim_start_matches('/');
        for (end, _) in name.match_indices('/') {
            self.folder(&name[..end], 0o755)?;
        }
        self.to.write_all(&header(name, mode, size, b'0')?)?;
        let written = io::copy(&mut content.take(size), &mut self.to)?;
        if written != size {
            return Err(io::Error::other(format!("{name} became shorter while it was read")));
        }
        let rest = usize::try_from(size % 512).map_err(io::Error::other)?;
        self.to.write_all(&[0; BLOCK][..(BLOCK - rest) % BLOCK])
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.to.write_all(&[0; 2 * BLOCK])?;
        Ok(self.to)
    }
}

fn header(name: &str, mode: u32, size: u64, kind: u8) -> io::Result<[u8; BLOCK]> {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    // Long names are split at a slash: up to 155 bytes go before those of the name's own field.
    let (prefix, last) = match name.len() {
        ..=100 => ("", name),
        _ => {
            let split = name.match_indices('/').map(|(at, _)| at);
            let at = split.into_iter().find(|at| name.len() - at - 1 <= 100 && *at <= 155);
            let at = at.ok_or_else(|| io::Error::other(format!("{name} is too long a name")))?;
            (&name[..at], &name[at + 1..])
        }
    };
    put(0, last.as_bytes());
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\x000000000\0");
    let digits = format!("{size:011o}\0");
    if digits.len() != 12 {
        return Err(io::Error::other(format!("{name} is too large")));
    }
    put(124, digits.as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(345, prefix.as_bytes());
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}
