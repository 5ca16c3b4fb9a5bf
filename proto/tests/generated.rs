//! The checked-in code is what the `.proto` files say.

use std::fs;
use std::path::{Path, PathBuf};

const REGENERATE: &str = "CLEAT_REGENERATE";

fn sources(root: &Path) -> Vec<PathBuf> {
    let folder = root.join("cleat/v1");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    files
}

fn generate(root: &Path, to: &Path) {
    let descriptors = protox::compile(sources(root), [root]).unwrap();
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .build_transport(false)
        .out_dir(to)
        .compile_fds(descriptors)
        .unwrap();
}

#[test]
fn the_generated_code_is_what_the_proto_files_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("generated");
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh).unwrap();
    generate(root, &fresh);

    let kept = root.join("src/generated");
    let names = |folder: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    if std::env::var_os(REGENERATE).is_some() {
        for name in names(&fresh) {
            fs::copy(fresh.join(&name), kept.join(&name)).unwrap();
        }
    }
    assert_eq!(names(&fresh), names(&kept), "another set of files is generated: run with {REGENERATE}=1");
    for name in names(&fresh) {
        let same = fs::read(fresh.join(&name)).unwrap() == fs::read(kept.join(&name)).unwrap();
        assert!(same, "{name:?} is stale: run with {REGENERATE}=1");
    }
}
