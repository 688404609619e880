//! One file for each command: its arguments, and what it does with them.

pub(crate) mod area;
pub(crate) mod call;
pub(crate) mod cat;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod demo;
pub(crate) mod df;
pub(crate) mod down;
pub(crate) mod du;
pub(crate) mod explain;
pub(crate) mod jobs;
pub(crate) mod lab;
pub(crate) mod layout;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod metadata;
pub(crate) mod mkdir;
pub(crate) mod mount;
pub(crate) mod mount_helper;
pub(crate) mod mv;
pub(crate) mod node;
pub(crate) mod probe;
pub(crate) mod rm;
pub(crate) mod scrub;
pub(crate) mod serve;
pub(crate) mod stat;
pub(crate) mod status;
pub(crate) mod target;
pub(crate) mod top;
pub(crate) mod umount;
pub(crate) mod up;
pub(crate) mod version;

use crate::cli::{Command, Line};
use crate::context::Context;
use crate::failure::Outcome;
use crate::process::logging;

/// What a client of this command is called in displays.
fn called(command: &Command) -> String {
    match command {
        Command::Mount(arguments) => arguments.mountpoint().display().to_string(),
        other => {
            // As in cli.rs, whose variants are the commands' names.
            let variant = format!("{other:?}");
            let name = variant.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            name.to_lowercase()
        }
    }
}

/// Runs the command that was asked for.
pub(crate) fn run(line: Line) -> Outcome {
    let context = Context { common: line.common, called: called(&line.command) };
    if !matches!(line.command, Command::Serve(_)) {
        let file = match &line.command {
            Command::Mount(arguments) => arguments.own_log(),
            _ => None,
        };
        logging::start(context.common.log.as_deref(), "warn", logging::Form::Text, file)?;
    }
    match line.command {
        Command::Up(arguments) => up::run(&context, arguments),
        Command::Down(arguments) => down::run(&context, arguments),
        Command::Serve(arguments) => serve::run(&context, arguments),
        Command::Node(arguments) => node::run(&context, arguments),
        Command::Mount(arguments) => mount::run(&context, arguments),
        Command::MountHelper(arguments) => mount_helper::run(&arguments),
        Command::Umount(arguments) => umount::run(&context, arguments),
        Command::Ls(arguments) => ls::run(&context, arguments),
        Command::Stat(arguments) => stat::run(&context, arguments),
        Command::Call(arguments) => call::run(&context, arguments),
        Command::Cat(arguments) => cat::run(&context, arguments),
        Command::Mkdir(arguments) => mkdir::run(&context, arguments),
        Command::Rm(arguments) => rm::run(&context, arguments),
        Command::Mv(arguments) => mv::run(&context, arguments),
        Command::Ln(arguments) => ln::run(&context, arguments),
        Command::Df(arguments) => df::run(&context, arguments),
        Command::Du(arguments) => du::run(&context, arguments),
        Command::Cp(arguments) => cp::run(&context, arguments),
        Command::Jobs(arguments) => jobs::run(&context, arguments),
        Command::Probe(arguments) => probe::run(&context, arguments),
        Command::Explain(arguments) => explain::run(&context, arguments),
        Command::Layout(arguments) => layout::run(&context, arguments),
        Command::Area(arguments) => area::run(&context, arguments),
        Command::Target(arguments) => target::run(&context, arguments),
        Command::Metadata(arguments) => metadata::run(&context, arguments),
        Command::Scrub(arguments) => scrub::run(&context, arguments),
        Command::Status(arguments) => status::run(&context, arguments),
        Command::Top(arguments) => top::run(&context, arguments),
        Command::Lab(arguments) => lab::run(&context, arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
        Command::Version(arguments) => version::run(&context, arguments),
        Command::Demo(arguments) => demo::run(&context, arguments),
    }
}
