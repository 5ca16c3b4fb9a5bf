//! The reference of the command line, `docs/reference/command-line.md`, written from what the parser knows.

use std::path::Path;

use clap::{Arg, Command, CommandFactory};

const HEAD: &str = "# Command line

What `cleat COMMAND --help` says, in one place. It is generated: a test compares it with the program. [How it finds a platform, and examples](../cli.md).
";

/// The page.
fn page() -> String {
    let mut root = crate::Arguments::command();
    root.build();
    let mut text = HEAD.to_owned();
    text.push_str("\n## Options of every command\n");
    let shared: Vec<&Arg> = root.get_arguments().filter(|arg| arg.is_global_set()).collect();
    text.push_str(&options(&shared));
    commands(&root, &mut text);
    text
}

fn commands(command: &Command, text: &mut String) {
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        if command.has_subcommands() {
            commands(command, text);
            continue;
        }
        let name = command.get_bin_name().unwrap_or_default();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("\n## {name}\n\n{about}.\n"));
        let own: Vec<&Arg> = command
            .get_arguments()
            .filter(|arg| !arg.is_global_set() && arg.get_id() != "help" && arg.get_id() != "version")
            .collect();
        text.push_str(&options(&own));
    }
}

/// A table of arguments.
fn options(arguments: &[&Arg]) -> String {
    if arguments.is_empty() {
        return String::new();
    }
    let mut table = "\n| argument | meaning |\n| --- | --- |\n".to_owned();
    for argument in arguments {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        table.push_str(&format!("| {} | {help}{} |\n", written(argument), more(argument)));
    }
    table
}

/// How an argument is written.
fn written(argument: &Arg) -> String {
    let value = || {
        let names = argument.get_value_names().unwrap_or_default();
        names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let takes = argument.get_action().takes_values();
    let written = match (argument.get_long(), argument.get_short()) {
        (None, None) if argument.is_required_set() => value(),
        (None, None) => format!("[{}]", value()),
        (long, short) => {
            let names = long.map(|long| format!("--{long}")).into_iter();
            let names: Vec<String> = names.chain(short.map(|short| format!("-{short}"))).collect();
            let value = if takes { format!(" {}", value()) } else { String::new() };
            format!("{}{value}", names.join(", "))
        }
    };
    format!("`{written}`")
}

/// What else there is to know: choices, the default, and the variable that says the same.
fn more(argument: &Arg) -> String {
    let mut more = Vec::new();
    let possible = argument.get_possible_values();
    let flag = !argument.get_action().takes_values();
    if !possible.is_empty() && !flag {
        let names: Vec<_> = possible.iter().map(|value| format!("`{}`", value.get_name())).collect();
        more.push(names.join(", "));
    }
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && !flag {
        more.push(format!("`{}` if it is not said", defaults.join(" ")));
    }
    if let Some(variable) = argument.get_env() {
        more.push(format!("or the variable `{}`", variable.to_string_lossy()));
    }
    if more.is_empty() { String::new() } else { format!(" ({})", more.join("; ")) }
}

#[test]
fn the_reference_is_what_the_parser_knows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/command-line.md");
    let page = page();
    if std::env::var_os("CLEAT_REGENERATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == page, "{} is stale: run with CLEAT_REGENERATE=1", path.display());
}

#[test]
fn the_parser_has_no_fault() {
    crate::Arguments::command().debug_assert();
}
