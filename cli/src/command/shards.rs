//! `cleat shards`: which runner owns which shard, drawn.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::runners;
use crate::output::Format;
use crate::target::Target;

/// A shard, as its Lease tells.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shard {
    group: String,
    shard: u32,
    /// None if nobody owns it.
    runner: Option<String>,
    epoch: i64,
}

/// How many shards are drawn on a line.
const WIDTH: u32 = 50;
/// What runners are drawn as.
const SIGNS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Draws the shards of a Cluster.
pub async fn run(target: &Target, format: Format) -> Result<()> {
    let platform = target.platform().await?;
    let (runners, owned) = tokio::try_join!(runners::list(&platform), platform.shards())?;
    let names: BTreeMap<&str, &str> =
        runners.iter().map(|runner| (runner.instance.as_str(), runner.name.as_str())).collect();
    let mut shards: Vec<Shard> = owned
        .iter()
        .map(|record| Shard {
            group: record.shard.group.to_string(),
            shard: record.shard.id.into(),
            // A holder without a Lease of its own is none: its shards are free to take.
            runner: record
                .holder
                .as_ref()
                .and_then(|holder| names.get(holder.as_str()))
                .map(|name| (*name).to_owned()),
            epoch: record.epoch.get(),
        })
        .collect();
    shards.sort_by(|a, b| (&a.group, a.shard).cmp(&(&b.group, b.shard)));
    format.print(&shards, |_| draw(&shards, &names.values().copied().collect::<Vec<_>>()))
}

fn draw(shards: &[Shard], names: &[&str]) -> String {
    if shards.is_empty() {
        return "no shard has an owner yet\n".to_owned();
    }
    let mut names = names.to_vec();
    names.sort_unstable();
    let signs: BTreeMap<&str, char> = names.iter().copied().zip(SIGNS.chars().cycle()).collect();
    let mut text = String::new();
    for (name, sign) in &signs {
        let count = shards.iter().filter(|shard| shard.runner.as_deref() == Some(name)).count();
        text.push_str(&format!("{sign}  {name}   {count}\n"));
    }
    let free = shards.iter().filter(|shard| shard.runner.is_none()).count();
    if free > 0 {
        text.push_str(&format!(".  nobody   {free}\n"));
    }
    let mut group = None;
    for shard in shards {
        if group != Some(&shard.group) {
            text.push_str(&format!("\n\n{}", shard.group));
            group = Some(&shard.group);
        }
        if shard.shard % WIDTH == 0 {
            text.push_str(&format!("\n{:>6}  ", shard.shard));
        } else if shard.shard % 10 == 0 {
            text.push(' ');
        }
        text.push(shard.runner.as_deref().and_then(|name| signs.get(name)).copied().unwrap_or('.'));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_runner_has_a_sign_and_free_shards_a_dot() {
        let shard = |shard, runner: Option<&str>| Shard {
            group: "default".to_owned(),
            shard,
            runner: runner.map(ToOwned::to_owned),
            epoch: 1,
        };
        let shards: Vec<Shard> = (0..12)
            .map(|n| {
                shard(
                    n,
                    if n < 6 {
                        Some("one")
                    } else if n < 11 {
                        Some("two")
                    } else {
                        None
                    },
                )
            })
            .collect();
        let drawn = draw(&shards, &["two", "one"]);
        assert_eq!(drawn, "A  one   6\nB  two   5\n.  nobody   1\n\n\ndefault\n     0  AAAAAABBBB B.\n");
    }
}
