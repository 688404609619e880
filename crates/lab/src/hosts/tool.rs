//! Runs the commands of the operating system that make and remove things (iproute2, util-linux, e2fsprogs).

use super::Error;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

/// Runs `tool` to its end and returns what it wrote to its standard output.
#[allow(clippy::disallowed_methods, reason = "tools of the kernel that end by themselves")]
pub(crate) fn run(tool: &'static str, arguments: &[&str]) -> Result<String, Error> {
    let mut command = command(tool);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::ToolMissing { tool, package: package(tool) },
        _ => Error::at(tool)(error),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let written = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let output = if written.is_empty() { output.status.to_string() } else { written };
    Err(Error::Tool { command: format!("{tool} {}", arguments.join(" ")), output })
}

/// A command that is also found where a shell without an administrator's PATH would not look.
pub(crate) fn command(tool: &str) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    let mut command = Command::new(tool);
    command.env("PATH", path);
    command
}

fn package(tool: &str) -> &'static str {
    match tool {
        "ip" | "tc" => "iproute2",
        "mkfs.ext4" => "e2fsprogs",
        "mount" | "umount" | "losetup" => "mount",
        _ => "util-linux",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_command_is_named_with_the_package_that_has_it() {
        let error = run("vazao-no-such-command", &[]).expect_err("no such command");
        assert_eq!(
            error.to_string(),
            "the command vazao-no-such-command is not installed: install the package util-linux"
        );
    }

    #[test]
    fn a_failing_command_is_named_with_its_arguments_and_what_it_wrote() {
        let error = run("ls", &["/no/such/place"]).expect_err("no such place").to_string();
        assert!(error.starts_with("ls /no/such/place: "), "{error}");
        assert!(error.contains("No such file"), "{error}");
    }
}
