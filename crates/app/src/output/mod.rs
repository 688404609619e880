//! Standard output: text for people, JSON for programs. A reader that went away (`vazao ls | head`) ends us quietly.
//! `live` draws a whole terminal anew.

pub(crate) mod live;

use crate::failure::{Failure, Outcome, report};
use crate::location;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, StdoutLock, Write};

/// Bytes collected before they are written out.
const BUFFER_BYTES: usize = 64 * 1024;

/// Buffered standard output.
pub(crate) struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    /// JSON was asked for.
    pub(crate) json: bool,
    /// The output is a terminal: names are shown escaped.
    pub(crate) terminal: bool,
}

impl Output {
    /// Standard output in the form the user asked for.
    pub(crate) fn new(json: bool) -> Output {
        let terminal = io::stdout().is_terminal();
        Output { writer: BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock()), json, terminal }
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Outcome {
        let written = self.writer.write_all(bytes);
        check(written)
    }

    /// Writes text.
    pub(crate) fn text(&mut self, text: &str) -> Outcome {
        self.bytes(text.as_bytes())
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: &str) -> Outcome {
        self.text(text)?;
        self.text("\n")
    }

    /// Writes a name: as it is into a file or pipe, escaped on a terminal.
    pub(crate) fn name(&mut self, name: &[u8]) -> Outcome {
        if self.terminal { self.text(&location::printable(name)) } else { self.bytes(name) }
    }

    /// Writes one JSON value on one line.
    pub(crate) fn value(&mut self, value: &impl Serialize) -> Outcome {
        let text = serde_json::to_string(value).map_err(|e| Failure::new(format!("writing JSON: {e}")))?;
        self.line(&text)
    }

    /// Says on a terminal what is being done, beside what is printed.
    pub(crate) fn spinner(&self) -> ProgressBar {
        let is_visible = !self.json && io::stderr().is_terminal();
        let draw = if is_visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, draw);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        bar
    }

    /// Does something with each; what fails is reported, and the others are done.
    pub(crate) fn each<T>(
        &mut self,
        all: impl IntoIterator<Item = T>,
        mut one: impl FnMut(&mut Output, T) -> Outcome,
    ) -> Outcome {
        let mut outcome = Ok(());
        for it in all {
            if let Err(failure) = one(self, it) {
                self.flush()?;
                report(&failure);
                outcome = Err(Failure::Reported);
            }
        }
        outcome
    }

    /// Writes out what is buffered; every command's last step.
    pub(crate) fn finish(mut self) -> Outcome {
        check(self.writer.flush())
    }

    /// Writes out what is buffered, to go on later.
    pub(crate) fn flush(&mut self) -> Outcome {
        check(self.writer.flush())
    }
}

fn check(written: io::Result<()>) -> Outcome {
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(format!("standard output: {error}"))),
    }
}

/// A name in JSON: text under `key`, and where it is not UTF-8 also its bytes in hexadecimal under `key_hex`.
pub(crate) fn put_name(object: &mut Map<String, Value>, key: &str, name: &[u8]) {
    object.insert(key.to_owned(), json!(String::from_utf8_lossy(name)));
    if std::str::from_utf8(name).is_err() {
        let hex: String = name.iter().map(|b| format!("{b:02x}")).collect();
        object.insert(format!("{key}_hex"), json!(hex));
    }
}
