//! `cleat dev` as a newcomer runs it.

use std::process::Command;

#[test]
fn the_demo_runs_and_the_next_start_finds_its_data() {
    let home = tempfile::tempdir().unwrap();
    let demo = || {
        let output = Command::new(env!("CARGO_BIN_EXE_cleat"))
            .args(["dev", "--demo", "--exit"])
            .current_dir(home.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(demo().contains("inventory/apples has 0 on hand"));
    assert!(demo().contains("inventory/apples has 7 on hand"));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_cleat"))
        .args(["dev", "--demo", "--exit", "--data"])
        .arg(file.join("below"))
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot make the folder"));
}
