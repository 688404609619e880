//! An interface: the methods that both sides of a call agree on.
//!
//! It comes from a file that Lua programs run. Here the file is data: the part of Lua's syntax that tables of names and
//! strings need is read, everything else is refused with its line.

mod parse;
mod tokens;

use crate::value::Kind;
use std::path::{Path, PathBuf};

/// What is wrong with an interface file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Wrong {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there, and what is expected.
    pub what: String,
}

/// An interface file that gave no interface.
#[derive(Debug, thiserror::Error)]
pub enum Unloaded {
    /// The file could not be read.
    #[error("{}: {error}; name a file with the interface of the service", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is no interface.
    #[error("{}, {wrong}", .path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        wrong: Wrong,
    },
}

/// Which way an argument travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the server.
    In,
    /// From the server.
    Out,
    /// Both ways.
    InOut,
}

impl Direction {
    /// Its name in interface files.
    pub fn name(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out => "out",
            Direction::InOut => "inout",
        }
    }

    fn is_sent(self) -> bool {
        self != Direction::Out
    }

    fn is_answered(self) -> bool {
        self != Direction::In
    }
}

/// An argument of a method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Argument {
    /// Which way it travels.
    pub direction: Direction,
    /// Its type.
    pub kind: Kind,
}

/// A method.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// The type of its result.
    pub result: Kind,
    /// Its arguments, in order.
    pub arguments: Vec<Argument>,
}

impl Method {
    /// Types of the lines that follow the name in a request.
    pub fn sent(&self) -> impl Iterator<Item = Kind> + '_ {
        self.arguments.iter().filter(|argument| argument.direction.is_sent()).map(|argument| argument.kind)
    }

    /// Types of the lines of an answer: the result first.
    pub fn answered(&self) -> impl Iterator<Item = Kind> + '_ {
        let arguments = self.arguments.iter().filter(|argument| argument.direction.is_answered());
        std::iter::once(self.result).chain(arguments.map(|argument| argument.kind))
    }

    /// How it is called, for messages: `boo(inout double) -> void`.
    pub fn signature(&self) -> String {
        let of = |argument: &Argument| format!("{} {}", argument.direction.name(), argument.kind);
        let arguments: Vec<String> = self.arguments.iter().map(of).collect();
        format!("{}({}) -> {}", self.name, arguments.join(", "), self.result)
    }
}

/// The methods of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name; files may leave it out.
    pub name: Option<String>,
    /// In the order of the file.
    pub methods: Vec<Method>,
}

impl Interface {
    /// Reads the text of an interface file. It is data and is never run.
    pub fn parse(text: &[u8]) -> Result<Interface, Wrong> {
        parse::interface(text)
    }

    /// Reads an interface file.
    pub fn load(path: &Path) -> Result<Interface, Unloaded> {
        let text = read_bounded(path).map_err(|error| Unloaded::File { path: path.to_owned(), error })?;
        Interface::parse(&text).map_err(|wrong| Unloaded::Contents { path: path.to_owned(), wrong })
    }

    /// The method of a name.
    pub fn method(&self, name: &[u8]) -> Option<&Method> {
        self.methods.iter().find(|method| method.name.as_bytes() == name)
    }

    /// Its name for messages.
    pub fn shown_name(&self) -> &str {
        self.name.as_deref().unwrap_or("of the server")
    }

    /// The names of its methods for a message, the first of them when there are many.
    pub fn method_names(&self) -> String {
        const SHOWN: usize = 20;
        let names: Vec<&str> = self.methods.iter().take(SHOWN).map(|method| method.name.as_str()).collect();
        let more = if self.methods.len() > SHOWN { ", …" } else { "" };
        format!("{}{more}", names.join(", "))
    }
}

/// One byte more than an interface may have: what is larger is refused by the parser, and not read whole before.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut text = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(crate::limits::INTERFACE_BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
    Ok(text)
}
