//! `vazao call`: one remote call (LuaRPC), to a node or to a server of another implementation.

use crate::cli::Results;
use crate::context::Context;
use crate::failure::{At, Failure, Outcome};
use crate::node::calls::{self, Secret};
use crate::output::Output;
use clap::Args;
use serde_json::{Map, json};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vazao_luarpc::client::CallOptions;
use vazao_luarpc::limits::MESSAGE_BYTES_MAX;
use vazao_luarpc::line::{self, CharForm, Unread};
use vazao_luarpc::{Client, Interface, Kind, Method, Report, Value};

const EXAMPLES: &str = "\
Examples:
  vazao call h1:8080 vazao.lua list /
  vazao call h1:8080 vazao.lua stat /big.bin --json
  vazao call h1:8080 vazao.lua read /big.bin 0 4096 --value 2 > first
  vazao call h1:8080 vazao.lua write /notes 0 @notes.txt --secret-file luarpc.secret
  vazao call h1:8080 vazao.lua limit 2
  vazao call 127.0.0.1:9000 ./mine.lua boo 1     # any server of LuaRPC

ARGs are the in and inout arguments of METHOD, in order. A double is a number, a char one byte, a void is nil; a string
is taken as it is, @FILE is what is in a file, @- standard input, and @@x is @x. Printed are the result, unless it is
void, and the out and inout arguments, a line each. A call that the server may have begun is never sent again.
What a node answers: docs/remote-calls-service.md.";

/// Arguments of `vazao call`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// Log in with the secret in FILE first
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    timeout: f64,
    /// Print only this value of the answer (1 is the result), byte by byte
    #[arg(long, value_name = "NUMBER", conflicts_with = "json", value_parser = clap::value_parser!(u16).range(1..))]
    value: Option<u16>,
    /// Send characters without quotes, as some servers want them
    #[arg(long)]
    bare_chars: bool,
    /// Where the server listens
    #[arg(value_name = "HOST:PORT")]
    server: String,
    /// The file with its interface; vazao.lua is that of nodes where there is no such file
    #[arg(value_name = "INTERFACE")]
    interface: PathBuf,
    /// What to call
    #[arg(value_name = "METHOD")]
    method: String,
    /// Its arguments
    #[arg(value_name = "ARG", allow_negative_numbers = true)]
    arguments: Vec<OsString>,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.001..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| format!("'{text}' is not a number of seconds between 0.001 and 86400"))
}

/// Calls.
pub(crate) fn run(_context: &Context, arguments: Arguments) -> Outcome {
    let interface = load(&arguments.interface)?;
    let Some(method) = interface.method(arguments.method.as_bytes()).cloned() else {
        return Err(failure(Report::NoMethod {
            interface: arguments.interface.display().to_string(),
            method: arguments.method,
            methods: interface.method_names(),
        }));
    };
    let values = values(&method, &arguments.arguments)?;
    let options = CallOptions {
        timeout: Duration::from_secs_f64(arguments.timeout),
        chars: if arguments.bare_chars { CharForm::Bare } else { CharForm::Quoted },
        ..CallOptions::default()
    };
    let clock = vazao_meter::clock::system();
    let mut client = Client::new(&arguments.server, Arc::new(interface), options, clock);
    if let Some(file) = &arguments.secret_file {
        login(&mut client, &Secret::load(file)?, &arguments.interface)?;
    }
    let answer = client.call(&method.name, &values).map_err(failure)?;
    show(&arguments, &method, &answer)
}

fn load(path: &Path) -> Outcome<Interface> {
    if path == Path::new(calls::INTERFACE_NAME) && !path.exists() {
        return calls::interface();
    }
    Interface::load(path).map_err(|unloaded| Failure::new(unloaded.to_string()))
}

/// What could not be called at all is a mistake of the command line.
fn failure(report: Report) -> Failure {
    match report {
        Report::NoMethod { .. } | Report::Count { .. } | Report::Type { .. } | Report::NotFinite { .. } => {
            Failure::usage(report.to_string())
        }
        other => Failure::new(other.to_string()),
    }
}

fn login(client: &mut Client, secret: &Secret, interface: &Path) -> Outcome {
    let has_login =
        ["challenge", "login"].iter().all(|name| client.interface().method(name.as_bytes()).is_some());
    if !has_login {
        return Err(Failure::usage(format!(
            "--secret-file: the interface {} has no methods challenge and login; leave it out",
            interface.display()
        )));
    }
    let answer = client.call("challenge", &[]).map_err(failure)?;
    let challenge = answer.first().and_then(Value::bytes).unwrap_or_default();
    client.call("login", &[secret.proof(challenge).into()]).map_err(failure)?;
    Ok(())
}

fn values(method: &Method, arguments: &[OsString]) -> Outcome<Vec<Value>> {
    let expected = method.sent().count();
    if expected != arguments.len() {
        let (signature, given) = (method.signature(), arguments.len());
        return Err(failure(Report::Count { signature, expected, given }));
    }
    let numbered = method.sent().zip(arguments).enumerate();
    let of = |(number, (kind, argument)): (usize, (Kind, &OsString))| {
        value(kind, argument).map_err(|what| match what {
            Failure::Usage(what) => {
                Failure::usage(format!("{}, argument {}: {what}", method.signature(), number + 1))
            }
            other => other,
        })
    };
    numbered.map(of).collect()
}

fn value(kind: Kind, argument: &OsStr) -> Outcome<Value> {
    let bytes = argument.as_bytes();
    let shown = || crate::location::show(bytes);
    match kind {
        Kind::String => string(bytes).map(Value::String),
        Kind::Char => match bytes {
            [byte] => Ok(Value::Char(*byte)),
            _ => Err(Failure::usage(format!("{} is no char: that is one byte", shown()))),
        },
        Kind::Void if bytes == b"nil" => Ok(Value::Nil),
        Kind::Void => Err(Failure::usage(format!("{} stands for a void, which is nil", shown()))),
        Kind::Double => match line::read(bytes, Kind::Double) {
            Ok((number @ Value::Double(_), _)) => Ok(number),
            Err(too_large @ Unread::Range(_)) => Err(Failure::usage(too_large.to_string())),
            _ => Err(Failure::usage(format!("{} is no number", shown()))),
        },
    }
}

fn string(bytes: &[u8]) -> Outcome<Vec<u8>> {
    match bytes {
        [b'@', b'@', ..] => Ok(bytes[1..].to_vec()),
        b"@-" => contents("standard input", std::io::stdin().lock()),
        [b'@', name @ ..] => {
            let path = Path::new(OsStr::from_bytes(name));
            contents(&path.display().to_string(), File::open(path).at(path.display())?)
        }
        _ => Ok(bytes.to_vec()),
    }
}

/// What does not fit into a call is not read whole before that is said.
fn contents(shown: &str, source: impl Read) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MESSAGE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).at(shown)?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(Failure::new(format!(
            "{shown}: has more than the {MESSAGE_BYTES_MAX} bytes of a call; send it in parts"
        )));
    }
    Ok(bytes)
}

fn show(arguments: &Arguments, method: &Method, answer: &[Value]) -> Outcome {
    let mut output = Output::new(arguments.results.json);
    if let Some(number) = arguments.value {
        let value = answer.get(usize::from(number) - 1).ok_or_else(|| {
            let count = answer.len();
            Failure::usage(format!(
                "--value {number}: the answer of {} has {count} values",
                method.signature()
            ))
        })?;
        output.bytes(&plain(value))?;
        return output.finish();
    }
    if output.json {
        output.value(&json!({
            "method": method.name,
            "result": answer.first().map(to_json),
            "arguments": answer.iter().skip(1).map(to_json).collect::<Vec<_>>(),
        }))?;
        return output.finish();
    }
    for (number, value) in answer.iter().enumerate() {
        if number == 0 && *value == Value::Nil && method.result == Kind::Void {
            continue;
        }
        let text = plain(value);
        output.bytes(&text)?;
        if text.last() != Some(&b'\n') {
            output.bytes(b"\n")?;
        }
    }
    output.finish()
}

/// The bytes of a string or a char, the text of anything else.
fn plain(value: &Value) -> Vec<u8> {
    match value {
        Value::String(bytes) => bytes.clone(),
        Value::Char(byte) => vec![*byte],
        Value::Double(_) | Value::Nil => {
            let mut text = Vec::new();
            line::write(value, CharForm::Bare, &mut text);
            text.pop();
            text
        }
    }
}

/// Bytes that are not UTF-8 are shown in hexadecimal digits as well; what is no finite number as null.
fn to_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Nil => serde_json::Value::Null,
        Value::Double(number) => json!(number),
        Value::Char(_) | Value::String(_) => {
            let bytes = plain(value);
            match std::str::from_utf8(&bytes) {
                Ok(text) => json!(text),
                Err(_) => {
                    let mut object = Map::new();
                    crate::output::put_name(&mut object, "text", &bytes);
                    serde_json::Value::Object(object)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(text: &str) -> Method {
        let interface = Interface::parse(format!("interface{{ methods = {{ {text} }} }}").as_bytes());
        interface.expect("an interface").methods.remove(0)
    }

    fn said(method: &Method, arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let failure = values(method, &arguments).expect_err("refused");
        assert_eq!(failure.exit_code(), 2, "{failure:?}");
        failure.message().unwrap_or_default().to_owned()
    }

    #[test]
    fn arguments_are_read_by_their_types() {
        let method = method(
            "m = { args = {{direction='in',type='double'},{direction='out',type='string'},{direction='inout',type='char'},\
             {direction='in',type='void'},{direction='in',type='string'}} }",
        );
        let arguments = ["-1e3", "x", "nil", "@@file"].map(OsString::from);
        let expected = [Value::Double(-1000.0), Value::Char(b'x'), Value::Nil, Value::from("@file")];
        assert_eq!(values(&method, &arguments).expect("fit"), expected);
        assert!(said(&method, &["1"]).contains("takes 4 arguments, and 1 were given"));
        assert!(said(&method, &["one", "x", "nil", ""]).contains("argument 1: one is no number"));
        assert!(said(&method, &["nil", "x", "nil", ""]).contains("argument 1: nil is no number"));
        assert!(
            said(&method, &["1e999", "x", "nil", ""]).contains("`1e999` is out of the range of a double")
        );
        assert!(said(&method, &["1", "xy", "nil", ""]).contains("argument 2: xy is no char"));
        assert!(said(&method, &["1", "x", "0", ""]).contains("argument 3: 0 stands for a void"));
    }

    #[test]
    fn json_shows_bytes_that_are_no_text_in_hexadecimal_digits() {
        assert_eq!(to_json(&Value::from("a")), json!("a"));
        assert_eq!(to_json(&Value::from(vec![0xff])), json!({"text": "\u{fffd}", "text_hex": "ff"}));
        assert_eq!(to_json(&Value::Double(f64::INFINITY)), serde_json::Value::Null);
    }
}
