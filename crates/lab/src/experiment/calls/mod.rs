//! Remote calls in Rust, Lua and Python as processes: a server, and a client that calls it for a time.
//!
//! The libraries and load programs of Lua and Python are part of this program and unpacked where an experiment works,
//! so that an installed `vazao` needs no checkout; their interpreters have to be there (`./x setup`).

pub mod load;

use crate::experiment::Lab;
use crate::hosts::Host;
use crate::{Error, child};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use vazao_meter::cpu::process_use;

/// What is called, as the study has it.
const INTERFACE: &str = include_str!("interface.lua");

macro_rules! bundled {
    ($($from:literal => $to:literal),* $(,)?) => { &[$(($to, include_str!($from))),*] };
}

/// What is unpacked.
const FILES: &[(&str, &str)] = bundled![
    "interface.lua" => "interface.lua",
    "load.lua" => "load.lua",
    "load.py" => "load.py",
    "../../../../../bindings/lua/luarpc.lua" => "luarpc.lua",
    "../../../../../bindings/lua/luarpc/interface.lua" => "luarpc/interface.lua",
    "../../../../../bindings/lua/luarpc/lines.lua" => "luarpc/lines.lua",
    "../../../../../bindings/lua/luarpc/options.lua" => "luarpc/options.lua",
    "../../../../../bindings/lua/luarpc/proxy.lua" => "luarpc/proxy.lua",
    "../../../../../bindings/lua/luarpc/server.lua" => "luarpc/server.lua",
    "../../../../../bindings/python/luarpc/__init__.py" => "luarpc/__init__.py",
    "../../../../../bindings/python/luarpc/errors.py" => "luarpc/errors.py",
    "../../../../../bindings/python/luarpc/interface.py" => "luarpc/interface.py",
    "../../../../../bindings/python/luarpc/lines.py" => "luarpc/lines.py",
    "../../../../../bindings/python/luarpc/options.py" => "luarpc/options.py",
    "../../../../../bindings/python/luarpc/proxy.py" => "luarpc/proxy.py",
    "../../../../../bindings/python/luarpc/server.py" => "luarpc/server.py",
];

/// Where `./x setup --lab` puts grpcio, in the directory of builds.
const GRPC_PACKAGES: &str = "tools/lab-python";

/// The packages of `./x setup --lab`, when this program was built in the same checkout.
fn grpc_packages(program: &Path) -> Option<PathBuf> {
    let builds = program.ancestors().nth(2)?;
    Some(builds.join(GRPC_PACKAGES)).filter(|packages| packages.join("grpc").is_dir())
}

/// How long a server may take to print its port.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// What calls and is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Language {
    Rust,
    Lua,
    Python,
    /// The bytes of the same calls over TCP with nothing around them, in Rust.
    Raw,
    /// gRPC of Python (grpcio), the same bytes as its messages.
    Grpc,
}

impl Language {
    pub(crate) const OF_CALLS: [Language; 3] = [Language::Rust, Language::Lua, Language::Python];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Language::Rust => "Rust",
            Language::Lua => "Lua",
            Language::Python => "Python",
            Language::Raw => "raw TCP",
            Language::Grpc => "gRPC (Python)",
        }
    }

    fn protocol(self) -> &'static str {
        match self {
            Language::Rust | Language::Lua | Language::Python => "luarpc",
            Language::Raw => "raw",
            Language::Grpc => "grpc",
        }
    }
}

/// What becomes of a connection after an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Profile {
    Close,
    Keepalive,
}

impl Profile {
    pub(crate) const ALL: [Profile; 2] = [Profile::Keepalive, Profile::Close];

    pub(crate) fn name(self) -> &'static str {
        if self == Profile::Close { "close" } else { "keepalive" }
    }
}

/// What a client calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) profile: Profile,
    pub(crate) method: &'static str,
    pub(crate) seconds: f64,
    /// Whether the latency of each call is kept.
    pub(crate) is_timed: bool,
}

/// What came of calling for a time.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Round {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    /// Processor seconds.
    pub(crate) client_s: f64,
    pub(crate) server_s: f64,
    /// That 50, 95 and 99 % of the calls took at most.
    pub(crate) latency_ms: [f64; 3],
    /// What the last failed call said.
    pub(crate) error: String,
}

/// The unpacked programs.
pub(crate) struct Programs<'a> {
    lab: &'a Lab,
    directory: tempfile::TempDir,
}

/// A running server; killed when dropped. It ends by itself, too, should this process be killed.
pub(crate) struct Server {
    child: Child,
    address: IpAddr,
    port: u16,
}

impl<'a> Programs<'a> {
    /// Unpacks them.
    pub(crate) fn unpack(lab: &'a Lab) -> Result<Programs<'a>, Error> {
        let directory = tempfile::Builder::new().prefix("vazao-lab-").tempdir_in(&lab.work);
        let directory = directory.map_err(Error::at(lab.work.display()))?;
        let library = directory.path().join("luarpc");
        fs::create_dir(&library).map_err(Error::at(library.display()))?;
        for (name, text) in FILES {
            let path = directory.path().join(name);
            fs::write(&path, text).map_err(Error::at(path.display()))?;
        }
        Ok(Programs { lab, directory })
    }

    /// Why programs of a language cannot be run here, and what helps.
    pub(crate) fn why_missing(&self, language: Language) -> Option<String> {
        let (program, arguments, what, remedy) = match language {
            Language::Rust | Language::Raw => return None,
            Language::Lua => {
                ("lua5.4", ["-e", "require 'socket'"], "lua5.4 with LuaSocket", "./x setup installs them")
            }
            Language::Python => ("python3", ["-c", "import socket"], "python3", "./x setup installs it"),
            Language::Grpc => (
                "python3",
                ["-c", "import grpc"],
                "python3 with grpcio",
                "`./x setup --lab` in a checkout brings it, or `python3 -m pip install grpcio`",
            ),
        };
        let mut command = Command::new(program);
        command.args(arguments);
        self.add_packages(language, &mut command);
        let error = child::text(&mut command, &self.lab.stop).err()?;
        Some(format!("{}: {what} is needed; {remedy} ({error})", language.name()))
    }

    fn add_packages(&self, language: Language, command: &mut Command) {
        if language == Language::Grpc
            && let Some(packages) = grpc_packages(&self.lab.program)
        {
            command.env("PYTHONPATH", packages);
        }
    }

    fn command(&self, language: Language, host: Option<&Host>, role: &str) -> Command {
        let make = |program: &Path| match host {
            Some(host) => host.command(program),
            None => Command::new(program),
        };
        let script = |interpreter: &str, name: &str| {
            let mut command = make(Path::new(interpreter));
            command.arg(self.directory.path().join(name));
            command
        };
        let mut command = match language {
            Language::Lua => script("lua5.4", "load.lua"),
            Language::Python | Language::Grpc => script("python3", "load.py"),
            Language::Rust | Language::Raw => {
                let mut command = make(&self.lab.program);
                command.args(["lab", "calls-load"]);
                command
            }
        };
        command.args([role, language.protocol()]).stdin(Stdio::null()).env("PYTHONDONTWRITEBYTECODE", "1");
        self.add_packages(language, &mut command);
        command
    }

    /// Starts a server that serves for `seconds` at most.
    pub(crate) fn serve(
        &self,
        language: Language,
        profile: Profile,
        host: Option<&Host>,
        seconds: f64,
    ) -> Result<Server, Error> {
        let address = host.map_or(IpAddr::from([127, 0, 0, 1]), |host| IpAddr::V4(host.address()));
        let log: PathBuf = self.directory.path().join(format!("{}-{}.log", language.name(), profile.name()));
        let file = fs::File::create(&log).map_err(Error::at(log.display()))?;
        let mut command = self.command(language, host, "server");
        command.args([address.to_string(), profile.name().to_owned(), seconds.to_string()]);
        let child =
            command.stdout(Stdio::piped()).stderr(file).spawn().map_err(Error::at(language.name()))?;
        let mut server = Server { child, address, port: 0 };
        server.port = server.announced_port().ok_or_else(|| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let said = text.lines().last().unwrap_or("nothing");
            Error::Failed(format!("the server of {} does not serve; it said: {said}", language.name()))
        })?;
        Ok(server)
    }

    /// Calls a server for a time.
    pub(crate) fn call(
        &self,
        language: Language,
        host: Option<&Host>,
        server: &Server,
        load: &Load,
    ) -> Result<Round, Error> {
        let mut command = self.command(language, host, "client");
        let timed = if load.is_timed { "timed" } else { "untimed" };
        command.args([server.address.to_string(), server.port.to_string(), load.profile.name().to_owned()]);
        command.args([load.method, &load.seconds.to_string(), timed]);
        let before = server.processor_s()?;
        let printed = child::text(&mut command, &self.lab.stop)?;
        let server_s = server.processor_s()? - before;
        parse(&printed, server_s).ok_or_else(|| {
            Error::Failed(format!("the client of {} printed {printed:?}, no round", language.name()))
        })
    }
}

impl Server {
    /// The port that it prints; none when it ends or takes too long.
    fn announced_port(&mut self) -> Option<u16> {
        let output = self.child.stdout.take()?;
        let (said, line) = channel();
        let read = move || {
            let mut text = String::new();
            if BufReader::new(output).read_line(&mut text).is_ok() {
                let _ = said.send(text);
            }
        };
        std::thread::Builder::new().name("port".to_owned()).spawn(read).ok()?;
        line.recv_timeout(READY_WITHIN).ok()?.trim().parse().ok()
    }

    fn processor_s(&self) -> Result<f64, Error> {
        let used = process_use(Some(self.child.id())).map_err(Error::at("the server of calls"))?;
        Ok(used.user_s + used.system_s)
    }
}

impl Drop for Server {
    #[allow(clippy::disallowed_methods, reason = "it was killed just before")]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client's line.
fn parse(line: &str, server_s: f64) -> Option<Round> {
    let words: Vec<&str> = line.trim_end().splitn(8, ' ').collect();
    let number = |at: usize| words.get(at)?.parse::<f64>().ok();
    Some(Round {
        calls: words.first()?.parse().ok()?,
        errors: words.get(1)?.parse().ok()?,
        seconds: number(2).filter(|&seconds| seconds > 0.0)?,
        client_s: number(3)?,
        server_s,
        latency_ms: [number(4)?, number(5)?, number(6)?],
        error: words.get(7).unwrap_or(&"").trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_s_line_is_read_with_and_without_an_error_and_half_a_line_is_not() {
        let round = parse("7 2 0.5 0.25 1 2 3 127.0.0.1:1, boo: gone\n", 0.125).unwrap();
        assert_eq!((round.calls, round.errors, round.seconds), (7, 2, 0.5));
        assert_eq!((round.client_s, round.server_s, round.latency_ms), (0.25, 0.125, [1.0, 2.0, 3.0]));
        assert_eq!(round.error, "127.0.0.1:1, boo: gone");
        assert_eq!(parse("7 0 0.5 0.25 0 0 0 \n", 0.0).unwrap().error, "");
        for half in ["", "7 2 0.5", "7 2 0 0.25 1 2 3", "Traceback"] {
            assert_eq!(parse(half, 0.0), None, "{half}");
        }
    }

    /// L1 had no gRPC to compare with: nothing brought grpcio, and what a checkout had was not found.
    #[test]
    fn grpcio_of_the_checkout_is_found_beside_its_builds_and_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("target/release/vazao");
        assert_eq!(grpc_packages(&program), None);
        let packages = directory.path().join("target/tools/lab-python");
        fs::create_dir_all(packages.join("grpc")).unwrap();
        assert_eq!(grpc_packages(&program), Some(packages));
        assert_eq!(grpc_packages(Path::new("/usr/bin/vazao")), None);
    }

    #[test]
    fn every_file_of_the_libraries_is_unpacked() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings");
        for library in ["lua/luarpc", "python/luarpc"] {
            for entry in fs::read_dir(root.join(library)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if name.ends_with(".lua") || name.ends_with(".py") {
                    let bundled = FILES.iter().any(|(file, _)| *file == format!("luarpc/{name}"));
                    assert!(bundled, "{library}/{name} is not in FILES of calls/mod.rs");
                }
            }
        }
    }
}
