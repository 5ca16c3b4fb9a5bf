//! The documents for users: what is between their fences is run as it is written.
//!
//! | fence | what becomes of the block |
//! | --- | --- |
//! | `sh` | run with `cleat dev`: a page is one session of a shell, from top to bottom |
//! | `sh cluster` | the same with a real cluster |
//! | `sh background="text"` | left running once it has printed the text, until the page ends |
//! | `sh until="text"` | stopped once it has printed the text |
//! | `sh skip="reason"` | not run |
//! | `yaml` | applied, or, if it is a list of steps, applied as the steps of a workflow |
//! | `yaml file="path"` | the same; and it is what this file of the repository has |
//! | `text`, `json` | what somebody prints |
//!
//! Commands that are only mentioned, in the text, in tables and in what is left out, have to be ones that there are: see
//! [`Page::mentioned`].
//!
//! Pages that another test runs in a way of its own (`console`, `rust`) are named in [`ELSEWHERE`].

mod session;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

pub use session::{Place, Session};

/// Languages that other tests run, on these pages only: where, and by which test.
pub const ELSEWHERE: [(&str, &str, &str); 3] = [
    ("console", "docs/gateway.md", "runner/tests/gateway/documented.rs"),
    ("rust", "docs/workflows.md", "runner/src/workflow/mod.rs"),
    ("rust", "docs/entities.md", "runner/src/entity/mod.rs"),
];

/// A page.
#[derive(Debug, Clone)]
pub struct Page {
    /// Its path in the repository.
    pub name: String,
    /// What it has between fences.
    pub blocks: Vec<Block>,
    /// What it has between backticks elsewhere.
    spans: Vec<String>,
}

/// What is between two fences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Where it begins.
    pub line: usize,
    /// The first word behind the fence.
    pub language: String,
    /// What else is there: words, and names with values.
    pub marks: BTreeMap<String, String>,
    /// The lines between the fences.
    pub text: String,
}

/// Where the repository is.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// README, everything below docs, and what the examples say of themselves, in order.
///
/// # Errors
/// A page cannot be read, or something on it is neither run nor marked.
pub fn pages() -> Result<Vec<Page>> {
    let mut names = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/reference"] {
        for entry in
            std::fs::read_dir(root().join(folder)).with_context(|| format!("cannot read {folder}"))?
        {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.ends_with(".md").then(|| format!("{folder}/{name}")));
        }
    }
    for entry in std::fs::read_dir(root().join("examples"))? {
        let name = format!("examples/{}/README.md", entry?.file_name().to_string_lossy());
        names.extend(root().join(&name).exists().then_some(name));
    }
    names.sort();
    names.into_iter().map(Page::read).collect()
}

impl Page {
    fn read(name: String) -> Result<Self> {
        let text =
            std::fs::read_to_string(root().join(&name)).with_context(|| format!("cannot read {name}"))?;
        let blocks = blocks(&text).with_context(|| name.clone())?;
        for block in &blocks {
            block.check(&name).with_context(|| format!("{name}:{}", block.line))?;
        }
        let spans = spans(&text);
        Ok(Self { name, blocks, spans })
    }

    /// Commands of a program that are written here and not run.
    pub fn mentioned<'p>(&'p self, program: &'p str) -> impl Iterator<Item = &'p str> {
        let skipped = self.blocks.iter().filter(|block| block.marks.contains_key("skip"));
        let lines = skipped.flat_map(|block| block.text.lines());
        let all = self.spans.iter().map(String::as_str).chain(lines);
        all.filter(move |text| text.split(' ').next() == Some(program))
    }

    /// What it has between backticks, outside of fences.
    #[must_use]
    pub fn spans(&self) -> &[String] {
        &self.spans
    }

    /// Whether there is something to run in a place.
    #[must_use]
    pub fn has_commands(&self, place: Place) -> bool {
        self.blocks.iter().any(|block| block.runs_in(place))
    }

    /// Its blocks of YAML.
    pub fn manifests(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.language == "yaml")
    }
}

impl Block {
    /// Whether it is run in a place.
    #[must_use]
    pub fn runs_in(&self, place: Place) -> bool {
        let cluster = self.marks.contains_key("cluster");
        self.language == "sh" && !self.marks.contains_key("skip") && cluster == (place == Place::Cluster)
    }

    /// Fails unless something is known to be done with it.
    fn check(&self, page: &str) -> Result<()> {
        let known: &[&str] = match self.language.as_str() {
            "sh" => &["cluster", "background", "until", "skip"],
            "yaml" => &["file"],
            "text" | "json" => &[],
            language if ELSEWHERE.iter().any(|(known, on, _)| *known == language && *on == page) => {
                &["no_run"]
            }
            language => bail!("nobody runs {language:?}: see e2e/src/document for what is known"),
        };
        if let Some(unknown) = self.marks.keys().find(|mark| !known.contains(&mark.as_str())) {
            bail!("the mark {unknown} has no meaning here");
        }
        if self.marks.get("skip").is_some_and(String::is_empty) {
            bail!("it is to be left out, and does not say why: skip=\"reason\"");
        }
        if let Some(file) = self.marks.get("file") {
            let there = std::fs::read_to_string(root().join(file)).with_context(|| file.clone())?;
            if there != self.text {
                bail!("{file} has something else");
            }
        }
        Ok(())
    }
}

/// What is between backticks, outside of fences. A span may go on in the next line.
fn spans(text: &str) -> Vec<String> {
    let mut fenced = false;
    let outside = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    });
    let outside = outside.collect::<Vec<_>>().join("\n");
    outside.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")).collect()
}

/// What is between the fences of a page. Code that is only indented cannot be marked, and is refused.
fn blocks(text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut before = "";
    for (number, line) in text.lines().enumerate() {
        let (line_number, trimmed) = (number + 1, line.trim_end());
        match &mut open {
            Some(_) if trimmed == "```" => blocks.extend(open.take()),
            Some(block) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            None if trimmed.starts_with("```") => {
                let (language, marks) =
                    info(trimmed.trim_start_matches('`')).with_context(|| format!("line {line_number}"))?;
                open = Some(Block { line: line_number, language, marks, text: String::new() });
            }
            None if line.starts_with("    ") && before.is_empty() => {
                bail!("line {line_number} is indented code: put it between fences that say what it is");
            }
            None => {}
        }
        before = trimmed;
    }
    match open {
        Some(block) => bail!("the fence of line {} is not closed", block.line),
        None => Ok(blocks),
    }
}

/// The words behind a fence: `sh until="Ready" cluster`, or `rust,no_run`.
fn info(text: &str) -> Result<(String, BTreeMap<String, String>)> {
    let (language, mut rest) = text.split_at(text.find([' ', ',']).unwrap_or(text.len()));
    let mut marks = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if rest.is_empty() {
            return Ok((language.to_owned(), marks));
        }
        let (name, after) = rest.split_at(rest.find(['=', ' ', ',']).unwrap_or(rest.len()));
        let value = match after.strip_prefix("=\"") {
            Some(quoted) => {
                let (value, after) = quoted.split_once('"').with_context(|| format!("{name} has no end"))?;
                rest = after;
                value
            }
            None if after.starts_with('=') => bail!("the value of {name} is not in quotes"),
            None => {
                rest = after;
                ""
            }
        };
        marks.insert(name.to_owned(), value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_has_a_language_and_marks() -> Result<()> {
        let (language, marks) = info("sh cluster until=\"is ready\"")?;
        assert_eq!(language, "sh");
        let marks: Vec<_> = marks.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(marks, [("cluster", ""), ("until", "is ready")]);
        assert_eq!(info("rust,no_run")?.1.len(), 1);
        assert!(info("sh until=Ready").is_err() && info("sh until=\"Ready").is_err());
        Ok(())
    }

    #[test]
    fn what_is_only_mentioned_is_found() {
        let text =
            "Ask `cleat\ndoctor`, or:\n\n```sh skip=\"why\"\ncleat dev\n```\n| `-o` | `cleat runners` |\n";
        assert_eq!(spans(text), ["cleat doctor", "-o", "cleat runners"]);
        let blocks = blocks(text).unwrap_or_default();
        let page = Page { name: "a".to_owned(), blocks, spans: spans(text) };
        let found: Vec<_> = page.mentioned("cleat").collect();
        assert_eq!(found, ["cleat doctor", "cleat runners", "cleat dev"]);
    }

    #[test]
    fn a_block_that_nobody_runs_is_refused() -> Result<()> {
        let faults = [
            ("```bash\nls\n```\n", "nobody runs \"bash\""),
            ("```\nls\n```\n", "nobody runs \"\""),
            ("```rust\nfn main() {}\n```\n", "nobody runs \"rust\""),
            ("```sh skip=\"\"\nls\n```\n", "does not say why"),
            ("```sh late\nls\n```\n", "the mark late"),
            ("text\n\n    ls\n", "indented code"),
            ("```sh\nls\n", "not closed"),
            ("```yaml file=\"Cargo.toml\"\na: 1\n```\n", "something else"),
        ];
        for (text, fault) in faults {
            let checked = blocks(text).and_then(|all| all.iter().try_for_each(|one| one.check("README.md")));
            let error = format!("{:#}", checked.err().context("it is taken")?);
            assert!(error.contains(fault), "{text}: {error}");
        }
        Ok(())
    }

    #[test]
    fn whoever_runs_the_other_pages_reads_them() -> Result<()> {
        for (_, page, test) in ELSEWHERE {
            let source = std::fs::read_to_string(root().join(test)).context(test)?;
            assert!(source.contains(page), "{test} does not read {page}");
        }
        Ok(())
    }
}
