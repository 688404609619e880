//! The command line: its commands, and the options that all of them have.

#[cfg(test)]
pub(crate) mod examples;
mod options;

pub(crate) use options::{Common, Results, zone_name};

use crate::commands;
use crate::failure;
use clap::{Arg, ArgAction, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;

const AFTER_HELP: &str = "\
Paths: vz:/a/b is in the volume, n1:/data/b in the area data of node n1, ftp://user@host/b (for
`cp`) on an FTP server, anything else on this machine.
With --json each line of results is an object, and so is each error: {\"error\":…,\"exit_code\":…} on standard error.
Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted by Ctrl-C (128 and the signal's number).

Examples:
  vazao up --dir /tmp/v --detach        a cluster on this machine
  export VAZAO_CLUSTER=/tmp/v/client.toml
  vazao cp -r ~/data vz:/               copy in
  vazao ls -lh vz:/data
  vazao mount vz:/ /mnt/v               use it with any program
  vazao down --dir /tmp/v               stop; the next up has everything back";

/// A parallel file system and data mover that tells where the bottleneck is.
#[derive(Debug, Parser)]
#[command(name = "vazao", version, disable_help_flag = true, after_help = AFTER_HELP)]
pub(crate) struct Line {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One command each; its file under `commands/` has the same name.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a cluster on this machine: one metadata service and some data servers
    Up(commands::up::Arguments),
    /// Stop a cluster that `up` started
    Down(commands::down::Arguments),
    /// Make this machine a node of a cluster of several machines: key, configuration, systemd unit
    Node(commands::node::Arguments),
    /// Run one node with the roles its configuration names
    Serve(commands::serve::Arguments),
    /// Show the volume as a directory of this machine
    Mount(commands::mount::Arguments),
    /// Let mount(8) and /etc/fstab mount the volume: `mount -t vazao`
    MountHelper(commands::mount_helper::Arguments),
    /// Take a mount away
    Umount(commands::umount::Arguments),
    /// List directories
    Ls(commands::ls::Arguments),
    /// Show the attributes of files
    Stat(commands::stat::Arguments),
    /// Write files to standard output
    Cat(commands::cat::Arguments),
    /// Make directories
    Mkdir(commands::mkdir::Arguments),
    /// Remove files or trees
    Rm(commands::rm::Arguments),
    /// Rename or move within the volume
    Mv(commands::mv::Arguments),
    /// Give a file a further name, or make a symbolic link
    Ln(commands::ln::Arguments),
    /// Show the space of the volume
    Df(commands::df::Arguments),
    /// Show the space that files and directories take
    Du(commands::du::Arguments),
    /// Copy files and trees into, out of and within the volume, and between nodes
    Cp(commands::cp::Arguments),
    /// List copies that nodes do in the background, watch, pause, resume or cancel them
    Jobs(commands::jobs::Arguments),
    /// Measure what a pair of nodes can do for copies, and name what limits it
    Probe(commands::probe::Arguments),
    /// Call a method of a node, or of any other server of LuaRPC
    Call(commands::call::Arguments),
    /// Show which targets hold a file's bytes, or set how new files in a directory are striped
    Layout(commands::layout::Arguments),
    /// Say where a file's copies are, what missing ones wait for, and what the loss of each server would do
    Explain(commands::explain::Arguments),
    /// Export directories of a node in place, or list what is exported
    Area(commands::area::Arguments),
    /// Give a data server another disk, list the files on one, or go on with an old copy of one
    Target(commands::target::Arguments),
    /// Look for damage of the metadata, or go on with an old copy of it
    #[command(visible_alias = "meta")]
    Metadata(commands::metadata::Arguments),
    /// Compare everything on the disks with its checksums
    Scrub(commands::scrub::Arguments),
    /// Show nodes, targets and space, and what to do about each trouble
    Status(commands::status::Arguments),
    /// Show who moves what, and what limits each, live
    Top(commands::top::Arguments),
    /// Benchmarks and experiments
    Lab(commands::lab::Arguments),
    /// Print what a shell needs to complete commands and options
    Completions(commands::completions::Arguments),
    /// Write the manual pages
    Man(commands::man::Arguments),
    /// Show the version and the formats it understands
    Version(commands::version::Arguments),
    /// Start a cluster, move data through it, compare, measure, clean up
    #[command(hide = true)]
    Demo(commands::demo::Arguments),
}

/// The command line as clap has it, with `-h` for help wherever it does not mean human sizes.
pub(crate) fn command() -> clap::Command {
    with_short_help(Line::command())
}

/// Whether `--json` is among the arguments. The laboratory's names a file.
pub(crate) fn wants_json(arguments: &[OsString]) -> bool {
    let is_lab = arguments.iter().any(|argument| argument == "lab");
    !is_lab && arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

/// Ends the process with what clap says of a command line that it does not understand, or with the help asked for.
pub(crate) fn refuse(error: &clap::Error, arguments: &[OsString]) -> ! {
    if !error.use_stderr() || !wants_json(arguments) {
        error.exit();
    }
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    failure::say(first.strip_prefix("error: ").unwrap_or(first), code);
    std::process::exit(error.exit_code())
}

fn with_short_help(mut command: clap::Command) -> clap::Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, with_short_help);
    }
    if command.get_arguments().any(|argument| argument.get_short() == Some('h')) {
        return command;
    }
    command.arg(Arg::new("short help").short('h').action(ArgAction::Help).hide(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_in_its_help() {
        for command in Line::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let group = command.has_subcommands();
            assert!(group || help.contains("Example"), "vazao {} has no example", command.get_name());
        }
    }

    /// The help of a command and of those below it, what is behind the options.
    fn helps(command: &clap::Command, name: &str, found: &mut Vec<(String, String)>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        found.push((name.to_owned(), help));
        for below in command.get_subcommands() {
            helps(below, &format!("{name} {}", below.get_name()), found);
        }
    }

    /// What `vazao cp --help` says behind its options was one lump of 2,119 characters, in which nothing was found.
    #[test]
    fn long_help_has_sections_with_headings() {
        let mut found = Vec::new();
        helps(&Line::command(), "vazao", &mut found);
        for (name, help) in found.iter().filter(|(name, _)| name != "vazao") {
            let has_heading = |part: &&str| part.lines().next().is_some_and(|line| line.ends_with(':'));
            let without: usize =
                help.split("\n\n").filter(|part| !has_heading(part)).map(|part| part.chars().count()).sum();
            assert!(without < 450, "{name}: {without} characters without a heading");
        }
    }

    #[test]
    fn h_means_human_sizes_where_the_unix_commands_have_it_so() {
        for command in ["ls", "du"] {
            let line = Line::try_parse_from(["vazao", command, "-h", "vz:/"]);
            assert!(line.is_ok(), "{command}: {line:?}");
        }
        assert!(Line::try_parse_from(["vazao", "df", "-h"]).is_ok());
    }

    #[test]
    fn h_is_help_everywhere_else() {
        let shown = |line: &[&str]| command().try_get_matches_from(line).expect_err("help").kind();
        for line in [&["vazao", "-h"][..], &["vazao", "cp", "-h"], &["vazao", "area", "add", "-h"]] {
            assert_eq!(shown(line), clap::error::ErrorKind::DisplayHelp, "{line:?}");
        }
    }

    /// clap has it in a feature that was switched off.
    #[test]
    fn a_misspelt_command_or_option_is_answered_with_what_was_meant() {
        let said = |line: &[&str]| command().try_get_matches_from(line).expect_err("wrong").to_string();
        assert!(said(&["vazao", "statsu"]).contains("status"));
        assert!(said(&["vazao", "cp", "--recusive", "a", "b"]).contains("--recursive"));
        assert!(said(&["vazao", "cp", "--overwrit", "a", "b"]).contains("--overwrite"));
        assert!(said(&["vazao", "cp", "--overwrite", "nevr", "a", "b"]).contains("never"));
    }

    #[test]
    fn common_options_are_understood_after_the_command() {
        let line = Line::try_parse_from(["vazao", "ls", "vz:/", "--cluster", "/c.toml"]).expect("valid");
        assert_eq!(line.common.cluster, Some(PathBuf::from("/c.toml")));
    }
}
