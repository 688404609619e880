//! Runs the commands of the operating system, and ours, to their ends.

use crate::failure::{Failure, Outcome};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command that is also found where a shell without an administrator's PATH would not look.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    let mut command = Command::new(program);
    command.env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Runs a command to its end and returns what it wrote to its standard output.
#[allow(
    clippy::disallowed_methods,
    reason = "tools that make file systems and links end by themselves; the run has a limit"
)]
pub fn run(mut command: Command) -> Outcome<String> {
    let shown = shown(&command);
    let output = command.output().map_err(Failure::at(&shown))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("{shown}: {}: {} {}", output.status, complaint.trim(), said.trim())))
}

/// [`run`] with words.
pub fn tool(program: &str, arguments: &[&str]) -> Outcome<String> {
    let mut command = command(program);
    command.args(arguments);
    run(command)
}

/// The program to test: what was asked for, or else the one beside this.
pub fn vazao(wanted: Option<&Path>) -> Outcome<PathBuf> {
    match wanted {
        Some(path) => path.canonicalize().map_err(Failure::at(path.display())),
        None => {
            Ok(std::env::current_exe().map_err(Failure::at("finding this program"))?.with_file_name("vazao"))
        }
    }
}

/// Whether a program is installed.
pub fn is_there(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin"])
        .any(|place| std::path::Path::new(place).join(program).exists())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
