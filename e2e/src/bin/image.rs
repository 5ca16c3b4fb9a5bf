//! Builds the images of operator and runner as archives that any runtime loads: `image [--profile PROFILE] FOLDER`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use e2e::product::Product;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (profile, folder) = match words.as_slice() {
        ["--profile", profile, folder] => (*profile, PathBuf::from(folder)),
        [folder] if !folder.starts_with('-') => ("release", PathBuf::from(folder)),
        _ => bail!("usage: image [--profile PROFILE] FOLDER"),
    };
    let product = Product::build(profile).await?;
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let tag = env!("CARGO_PKG_VERSION");
    for (image, name) in [(product.operator(tag), "operator"), (product.runner(tag), "runner")] {
        let archive = folder.join(format!("cleat-{name}.tar"));
        image.write(&archive)?;
        let size = std::fs::metadata(&archive)?.len() / (1 << 20);
        println!("{} ({size} MiB): {}", image.name(), archive.display());
    }
    Ok(())
}
