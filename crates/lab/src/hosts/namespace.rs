//! A network namespace: made, entered, and spoken to through `ip` and `tc`.

use super::ledger::Ledger;
use super::undo::Made;
use super::{Error, tool};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file that names a network namespace (`ip-netns(8)`).
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

/// A network namespace of ours.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace with a loopback interface and without IPv6, whose own chatter would disturb measurements.
    pub(crate) fn create(ledger: &Ledger, suffix: &str) -> Result<Namespace, Error> {
        let namespace = Namespace { name: format!("{}-{suffix}", ledger.name()) };
        ledger.record(&Made::Namespace(namespace.name.clone()))?;
        tool::run("ip", &["netns", "add", &namespace.name])?;
        // A kernel without IPv6 has no such file, and nothing to switch off.
        namespace.inside(|| {
            for which in ["all", "default"] {
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
            }
        })?;
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` in this namespace.
    pub(crate) fn ip(&self, arguments: &[&str]) -> Result<String, Error> {
        tool::run("ip", &[&["-n", &self.name], arguments].concat())
    }

    /// Runs `tc` in this namespace.
    pub(crate) fn tc(&self, arguments: &[&str]) -> Result<String, Error> {
        tool::run("tc", &[&["-n", &self.name], arguments].concat())
    }

    /// A counter of one of its interfaces (Documentation/ABI/testing/sysfs-class-net-statistics).
    pub(crate) fn counter(&self, device: &str, name: &str) -> Result<u64, Error> {
        let file = format!("/sys/class/net/{device}/statistics/{name}");
        let text = tool::run("ip", &["netns", "exec", &self.name, "cat", &file])?;
        text.trim().parse().map_err(|_| Error::Refused(format!("{file} says {text:?}, which is no number")))
    }

    /// A command that will run in this namespace and is otherwise at home: same files, mounts and users.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = tool::command("nsenter");
        command.arg(format!("--net={}", file(&self.name).display())).arg("--").arg(program);
        command
    }

    /// Runs `work` on a thread inside this namespace. Sockets made there stay there, whichever thread uses them
    /// afterwards.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let path = file(&self.name);
        let handle = File::open(&path).map_err(Error::at(path.display()))?;
        let on_thread = move || {
            move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(Error::at_call(path.display()))?;
            Ok(work())
        };
        std::thread::scope(|scope| scope.spawn(on_thread).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
