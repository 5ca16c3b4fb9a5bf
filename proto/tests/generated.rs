//! The checked-in code is what the `.proto` files say.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

const REGENERATE: &str = "CLEAT_REGENERATE";

fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut names =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn generate(root: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let mut sources = Vec::new();
    for folder in ["cleat/v1", "cleat/gateway/v1"].map(|folder| root.join(folder)) {
        sources.extend(names(&folder)?.into_iter().map(|name| folder.join(name)));
    }
    let descriptors = protox::compile(sources, [root])?;
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .build_transport(false)
        .out_dir(to)
        .compile_fds(descriptors)?;
    Ok(())
}

#[test]
fn the_generated_code_is_what_the_proto_files_say() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("generated");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    fs::create_dir_all(&fresh)?;
    generate(root, &fresh)?;

    let kept = root.join("src/generated");
    if std::env::var_os(REGENERATE).is_some() {
        for name in names(&fresh)? {
            fs::copy(fresh.join(&name), kept.join(&name))?;
        }
    }
    assert_eq!(names(&fresh)?, names(&kept)?, "another set of files is generated: run with {REGENERATE}=1");
    for name in names(&fresh)? {
        let same = fs::read(fresh.join(&name))? == fs::read(kept.join(&name))?;
        assert!(same, "{name:?} is stale: run with {REGENERATE}=1");
    }
    Ok(())
}
