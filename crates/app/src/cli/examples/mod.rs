//! Tests: examples in help texts, documents, comments and messages are ones that this program understands.
//!
//! They are found where they stand, so that a new example is tested without a word here. Lines of a block that run
//! `vazao` are parsed as a whole; so is TOML, as node.toml or client.toml, also with its comments taken away. A command
//! named within a sentence may lack arguments, and has to exist with the options that it names.

mod configuration;
mod reference;
mod shell;
mod text;

use crate::cli::Line;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};
use std::fs;
use std::path::{Path, PathBuf};
use text::{Block, Text};

/// What lies on disks (docs/on-disk.md) and travels (docs/wire.md) and reads like a command.
const FORMATS: [&str; 3] = ["vazao seals", "vazao server proof", "vazao client proof"];

/// Less than this and the search has lost its way.
const BLOCKS_MIN: usize = 100;
const SPANS_MIN: usize = 200;
const REMEDIES_MIN: usize = 40;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The help texts of a command and of those below it.
fn help_texts(command: &Command, name: &str, texts: &mut Vec<Text>) {
    let mut whole = String::new();
    for part in [command.get_about(), command.get_long_about(), command.get_after_help()] {
        whole += &part.map(ToString::to_string).unwrap_or_default();
        whole += "\n\n";
    }
    for argument in command.get_arguments() {
        whole += &argument.get_help().map(ToString::to_string).unwrap_or_default();
        whole += "\n\n";
    }
    texts.push(text::help(&format!("{name} --help"), &whole));
    for below in command.get_subcommands() {
        help_texts(below, &format!("{name} {}", below.get_name()), texts);
    }
}

fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of the repository") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
}

/// Everything in which examples stand.
fn all_texts() -> Vec<Text> {
    let mut texts = Vec::new();
    help_texts(&Line::command(), "vazao", &mut texts);
    let mut documents = vec![];
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        documents.push(root().join(name));
    }
    files(&root().join("docs"), "md", &mut documents);
    for path in documents {
        let content = fs::read_to_string(&path).expect("readable");
        texts.push(text::document(&shown(&path), &content));
    }
    let mut sources = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        files(&entry.expect("readable").path().join("src"), "rs", &mut sources);
    }
    for path in sources.iter().filter(|path| !path.to_string_lossy().contains("app/src/cli/examples/")) {
        let content = fs::read_to_string(path).expect("readable");
        texts.push(text::source(&shown(path), &content));
    }
    texts
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// What is wrong with a command line that is shown as it would be typed.
fn wrong_command(words: &[String]) -> Option<String> {
    if words.get(1).is_some_and(|word| word.contains('…')) {
        return None;
    }
    let error = Line::try_parse_from(words).err()?;
    (!matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)).then(|| first_line(&error))
}

/// What is wrong with a command that is named within a sentence: it may lack arguments, and be a placeholder.
fn wrong_mention(words: &[String]) -> Option<String> {
    let is_placeholder = |word: &String| word.contains('…') || word.chars().all(|c| c.is_ascii_uppercase());
    if words.get(1).is_none_or(is_placeholder) || FORMATS.contains(&words.join(" ").as_str()) {
        return None;
    }
    let words: Vec<&String> = words.iter().filter(|word| word.as_str() != "…").collect();
    let error = Line::try_parse_from(words).err()?;
    let is_short = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
    );
    let is_short = is_short || first_line(&error).ends_with("none was supplied");
    (!is_short).then(|| first_line(&error))
}

/// Commands that messages name and do not propose, by the file of the message.
const NAMED: [(&str, &str); 17] = [
    ("app/src/commands/area.rs", "vazao area"),
    ("app/src/commands/target.rs", "vazao target"),
    ("app/src/commands/mv.rs", "vazao cp"),
    ("app/src/commands/mount_helper.rs", "vazao mount"),
    ("app/src/commands/node/plan.rs", "vazao node"),
    ("app/src/commands/node/plan.rs", "vazao node init"),
    ("app/src/commands/node/unit.rs", "vazao node"),
    ("app/src/commands/status/known.rs", "vazao status"),
    ("app/src/commands/up.rs", "vazao up"),
    ("app/src/context.rs", "vazao up"),
    ("app/src/cluster/directory.rs", "vazao up"),
    ("app/src/location/mod.rs", "vazao cp"),
    ("app/src/mounted/line.rs", "vazao umount"),
    ("app/src/node/calls/copies.rs", "vazao cp"),
    ("lab/src/experiment/g1.rs", "vazao probe"),
    ("lab/src/experiment/w2.rs", "vazao cp"),
    ("mover/src/job/queue/mod.rs", "vazao cp"),
];

/// A proposed command as it is typed, with something in place of what only the message or its reader knows.
fn typed(words: &[String]) -> Vec<String> {
    let filled = |word: &String| {
        let mut text = String::new();
        let mut depth = 0;
        for letter in word.chars() {
            match letter {
                '{' => depth += 1,
                '}' => {
                    depth -= 1;
                    text.push('x');
                }
                '…' => text.push('x'),
                _ if depth == 0 => text.push(letter),
                _ => {}
            }
        }
        text
    };
    words.iter().map(filled).collect()
}

/// What is wrong with the commands that a message proposes, typed as they are.
pub(crate) fn wrong_remedies(message: &str) -> Vec<String> {
    let spans = text::source("", message).spans;
    let wrong = |words: &Vec<String>| {
        let why = wrong_command(&typed(words))?;
        Some(format!("`{}`: {why}", words.join(" ")))
    };
    let is_proposed = |words: &&Vec<String>| !NAMED.iter().any(|(_, named)| *named == words.join(" "));
    spans.iter().filter(is_proposed).filter_map(wrong).collect()
}

/// The lines of a source file that are neither comments nor tests.
fn messages(content: &str) -> String {
    let before_tests = content.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = before_tests.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

fn first_line(error: &clap::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// What is wrong with the lines of a block.
fn wrong_in_block(block: &Block) -> Vec<String> {
    if block.is_toml() {
        return configuration::wrong(&block.lines.join("\n")).into_iter().collect();
    }
    let mut wrong = Vec::new();
    for command in shell::commands(&block.lines) {
        wrong.extend(wrong_command(&command).map(|why| format!("{}: {why}", command.join(" "))));
    }
    wrong
}

#[test]
fn every_example_is_understood() {
    let (mut wrong, mut blocks, mut spans) = (Vec::new(), 0, 0);
    for text in all_texts() {
        for block in &text.blocks {
            blocks += usize::from(block.is_toml()) + shell::commands(&block.lines).len();
            wrong.extend(wrong_in_block(block).into_iter().map(|why| format!("{}: {why}", text.place)));
        }
        for words in &text.spans {
            spans += 1;
            let why = wrong_mention(words);
            wrong.extend(why.map(|why| format!("{}: `{}`: {why}", text.place, words.join(" "))));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(blocks > BLOCKS_MIN && spans > SPANS_MIN, "{blocks} examples, {spans} mentions");
}

/// "`vazao area add NAME DIR` on its machine does" lacked an option that had to be given, `vazao target add` another:
/// what a message proposes was held to be a mention.
#[test]
fn every_command_that_a_message_proposes_can_be_typed() {
    let (mut wrong, mut proposed, mut named) = (Vec::new(), 0, std::collections::BTreeSet::new());
    let mut sources = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        files(&entry.expect("readable").path().join("src"), "rs", &mut sources);
    }
    for path in sources.iter().map(|path| shown(path)) {
        if path.contains("/tests") || path.contains("cli/examples/") || path.starts_with("crates/tidy/") {
            continue;
        }
        let content = fs::read_to_string(root().join(&path)).expect("readable");
        for words in text::source(&path, &messages(&content)).spans {
            let span = words.join(" ");
            if let Some(pair) = NAMED.iter().find(|(file, named)| path.ends_with(file) && *named == span) {
                named.insert(pair);
                continue;
            }
            proposed += 1;
            wrong.extend(wrong_command(&typed(&words)).map(|why| format!("{path}: `{span}`: {why}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unused: Vec<_> = NAMED.iter().filter(|pair| !named.contains(pair)).collect();
    assert!(
        unused.is_empty() && proposed > REMEDIES_MIN,
        "{proposed} proposed; not named any more: {unused:?}"
    );
}

#[test]
fn wrong_examples_are_found() {
    assert!(wrong_remedies("give it a disk: `vazao target add`")[0].contains("required"));
    assert_eq!(wrong_remedies("`vazao target add {shown}` or `vazao jobs errors …`"), Vec::<String>::new());
    let document = |text: &str| text::document("page.md", text);
    let in_blocks = |text: &str| document(text).blocks.iter().flat_map(wrong_in_block).collect::<Vec<_>>();
    let command = "```\n$ mkdir /m && vazao mount --nonsense vz:/ /m    text\n```\n";
    assert!(in_blocks(command)[0].contains("--nonsense"), "{:?}", in_blocks(command));
    assert!(in_blocks(&command.replace("--nonsense ", "")).is_empty());
    let configuration = "```\nmeta = [\"host1:7000\"]\nkey_fil = \"cluster.key\"\n```\n";
    assert!(in_blocks(configuration)[0].contains("key_fil"));
    assert!(in_blocks(&configuration.replace("key_fil", "key_file")).is_empty());
    let mention = document("Say `vazao frobnicate`, or `vazao cp --no-such` or `vazao cp`.");
    let wrong = mention.spans.iter().filter_map(|words| wrong_mention(words));
    assert_eq!(wrong.count(), 2, "{:?}", mention.spans);
    let source = text::source("x.rs", "\"say `vazao target accept \\\n     -old {id}`\"");
    assert_eq!(source.spans, [["vazao", "target", "accept", "-old", "{id}"]]);
}
