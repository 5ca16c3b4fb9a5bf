//! The references of the command line and of the operator, `docs/reference/`, written from what the parsers know.

use std::path::Path;

use clap::{Arg, Args as _, Command, CommandFactory};

const HEAD: &str = "# Command line

What `cleat COMMAND --help` says, in one place. It is generated: a test compares it with the program. [How it finds a platform, and examples](../cli.md).
";

const OPERATOR: &str = "# Operator

What `cleat-operator run --help` says. The chart sets these by its [values](../install.md); whoever runs an operator without it, sets them as arguments or
variables. It is generated: a test compares it with the program. `CLEAT_LOG` says how much it logs, as for [runners](../configuration.md), and `CLEAT_LOG_FORMAT=json` makes
each line an object.
";

/// The page of the operator.
fn operator() -> String {
    let command = cleat_operator::Options::augment_args(Command::new("cleat-operator"));
    let all: Vec<&Arg> = command.get_arguments().collect();
    OPERATOR.to_owned() + &options(&all)
}

/// The page of the command line.
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
fn the_references_are_what_the_parsers_know() {
    for (name, page) in [("command-line.md", page()), ("operator.md", operator())] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(name);
        if std::env::var_os("CLEAT_REGENERATE").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == page, "{} is stale: run with CLEAT_REGENERATE=1", path.display());
    }
}

/// A command that a page mentions, as words. What is between quotes is one.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, piece) in command.split('\'').enumerate() {
        match number % 2 {
            0 => words.extend(piece.split_whitespace().map(ToOwned::to_owned)),
            _ => words.push(piece.to_owned()),
        }
    }
    words
}

/// Fails for a command or an option that there is not. Names of commands stand for them in a text, without what they need.
fn known(command: &str) -> Result<(), clap::Error> {
    use clap::error::ErrorKind;
    let words = words(command.strip_prefix("kubectl ").unwrap_or(command));
    match crate::Arguments::command().try_get_matches_from(words) {
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand => Ok(()),
            _ => Err(error),
        },
    }
}

#[test]
fn a_command_that_there_is_not_is_told_from_one_that_is_only_named() {
    for good in [
        "cleat",
        "cleat stream",
        "cleat dev --help",
        "kubectl cleat runners -o wide",
        "cleat call a/b c '{\"d\": 1}'",
    ] {
        assert!(known(good).is_ok(), "{good}");
    }
    for bad in [
        "cleat runner",
        "cleat dev --fast",
        "cleat workflow restart x",
        "cleat call a b",
        "kubectl cleat shards x",
    ] {
        assert!(known(bad).is_err(), "{bad}");
    }
}

#[test]
fn every_command_that_the_documents_mention_is_known() {
    let mut mentioned = 0;
    for page in e2e::document::pages().unwrap() {
        let plugin = page.mentioned("kubectl").filter(|command| command.starts_with("kubectl cleat"));
        for command in page.mentioned("cleat").chain(plugin) {
            // It stands for all of them.
            let command = command.replace("COMMAND", "dev");
            assert!(known(&command).is_ok(), "{}: {command}: {}", page.name, known(&command).unwrap_err());
            mentioned += 1;
        }
    }
    assert!(mentioned > 20, "{mentioned} commands");
}

#[test]
fn every_option_that_the_page_of_the_command_line_names_is_known() {
    fn collect(command: &Command, options: &mut Vec<String>) {
        for argument in command.get_arguments() {
            options.extend(argument.get_long().map(|long| format!("--{long}")));
            options.extend(argument.get_short().map(|short| format!("-{short}")));
        }
        command.get_subcommands().for_each(|command| collect(command, options));
    }
    let mut options = Vec::new();
    collect(&crate::Arguments::command(), &mut options);
    let pages = e2e::document::pages().unwrap();
    let page = pages.iter().find(|page| page.name == "docs/cli.md").unwrap();
    let own = page.spans().iter().filter(|span| !span.starts_with("cargo ") && !span.starts_with("kubectl "));
    let named = own.flat_map(|span| span.split(' ')).filter(|word| word.starts_with('-'));
    let mut count = 0;
    for option in named.map(|word| word.split('=').next().unwrap_or(word)) {
        assert!(options.iter().any(|known| known == option), "{option}");
        count += 1;
    }
    assert!(count > 10, "{count} options");
}

#[test]
fn the_parser_has_no_fault() {
    crate::Arguments::command().debug_assert();
}
