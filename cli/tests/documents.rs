//! README, docs and the examples' own pages: what needs no cluster is run here as it is written, the rest in `e2e/tests/end_to_end/documents.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

mod world;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use e2e::document::{Block, Place, Session, pages, root};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde::Deserialize;
use serde_json::{Value, json};
use world::{Dev, kubectls, orders};

/// What a page needs that does not start a platform itself.
const PLATFORM: &str = "cleat dev --demo";

/// A shell with the program that is tested, and a kubectl. Port 8080 is the one that this platform has.
fn session(kubectl: &Path) -> Result<Session> {
    let cleat = Path::new(env!("CARGO_BIN_EXE_cleat"));
    let orders = orders();
    let programs =
        [("cleat", cleat), ("kubectl-cleat", cleat), ("kubectl", kubectl), ("orders", orders.as_path())];
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let session = Session::new(&programs)?.variable("CLEAT_DEV_PORT", &free);
    let detour = format!("connect-to = \"127.0.0.1:8080:127.0.0.1:{free}\"\n");
    std::fs::write(session.home().join(".curlrc"), detour)?;
    Ok(session)
}

#[test]
fn every_command_does_what_it_says() -> Result<()> {
    let pages = pages()?;
    let Some((kubectl, _)) = kubectls().pop() else {
        eprintln!("no kubectl is at hand: the documents are read, and their commands are not run");
        return Ok(());
    };
    let mut run = 0;
    for page in pages.iter().filter(|page| page.has_commands(Place::Dev)) {
        let mut session = session(&kubectl)?;
        let starts = |block: &Block| block.runs_in(Place::Dev) && block.text.contains(" dev --");
        if !page.blocks.iter().any(starts) {
            session.prepare(PLATFORM, "running; Ctrl-C")?;
            session.prepare("export KUBECONFIG=.cleat/kubeconfig", "")?;
        }
        session.run(page, Place::Dev)?;
        run += 1;
    }
    assert!(run >= 3, "{run} pages have commands");
    Ok(())
}

/// What kubectl says of a command of its own.
fn help(kubectl: &Path, command: &[&str]) -> Result<String> {
    let done = Command::new(kubectl).args(command).arg("--help").env_remove("KUBECONFIG").output()?;
    Ok(String::from_utf8(done.stdout)?)
}

#[test]
fn every_command_of_kubectl_that_is_mentioned_is_known() -> Result<()> {
    let Some((kubectl, _)) = kubectls().pop() else {
        eprintln!("no kubectl is at hand: nobody knows what it knows");
        return Ok(());
    };
    let common = Command::new(&kubectl).arg("options").output()?;
    let common = String::from_utf8(common.stdout)?;
    let mut mentioned = 0;
    for page in pages()? {
        for text in page.mentioned("kubectl").filter(|text| !text.starts_with("kubectl cleat")) {
            let words: Vec<&str> = text.split(' ').skip(1).collect();
            let Some(verb) = words.first() else { continue };
            let help = help(&kubectl, &[verb])?;
            let usage = format!("kubectl {verb}");
            assert!(help.contains(&usage), "{}: {text}: there is no {usage}", page.name);
            for flag in words.iter().filter(|word| word.starts_with('-')) {
                let flag = flag.split('=').next().unwrap_or(flag);
                // `-f, --filename=[]:` or `--all=false:`
                let known =
                    |help: &str| help.contains(&format!("{flag}=")) || help.contains(&format!("{flag}, "));
                assert!(known(&help) || known(&common), "{}: {text}: there is no {flag}", page.name);
            }
            mentioned += 1;
        }
    }
    assert!(mentioned > 5, "{mentioned} commands");
    Ok(())
}

/// The objects of a block. A list of steps becomes a workflow.
fn objects(block: &Block) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(&block.text) {
        let value = Value::deserialize(document)?;
        objects.push(match value {
            Value::Array(steps) => json!({
                "apiVersion": "cleat.dev/v1alpha1", "kind": "WorkflowType", "metadata": {"name": "steps"}, "spec": {"steps": steps},
            }),
            object => object,
        });
    }
    Ok(objects)
}

async fn apply(client: &kube::Client, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().context("it has no kind")?;
    let (resource, _) = kube::discovery::pinned_kind(client, &GroupVersionKind::try_from(&types)?).await?;
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let name = object.metadata.name.clone().context("it has no name")?;
    let parameters = PatchParams::apply("documents").force().dry_run().validation_strict();
    api.patch(&name, &parameters, &Patch::Apply(&object))
        .await
        .with_context(|| format!("{} {name}", types.kind))?;
    Ok(())
}

#[test]
fn every_manifest_is_taken() -> Result<()> {
    let dev = Dev::start(&[]);
    let mut taken = 0;
    for page in pages()? {
        for block in page.manifests() {
            let place = format!("{}:{}", page.name, block.line);
            for object in objects(block).with_context(|| place.clone())? {
                dev.api().with(async |client| apply(&client, object).await).with_context(|| place.clone())?;
                taken += 1;
            }
        }
    }
    assert!(taken > 20, "{taken} manifests");
    Ok(())
}

#[test]
fn links_lead_somewhere() -> Result<()> {
    for page in pages()? {
        let text = std::fs::read_to_string(root().join(&page.name))?;
        // What is between backticks only looks like a link.
        let text: String = text.split('`').step_by(2).collect();
        let folder = Path::new(&page.name).parent().context("a folder")?;
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.contains("://") {
                assert!(root().join(folder).join(path).exists(), "{}: {link} leads nowhere", page.name);
            }
        }
    }
    Ok(())
}
