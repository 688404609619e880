//! The crate of remote calls as a process that the suite drives: see implementations.py, which has the words of both
//! sides.
//!
//! It has no options `repeatable` and `connected`: this client keeps a call from running twice without the first, and
//! its callers log in before they call.

use std::collections::HashMap;
use std::error::Error;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vazao_luarpc::client::CallOptions;
use vazao_luarpc::line::CharForm;
use vazao_luarpc::server::{Function, serve};
use vazao_luarpc::{Client, Interface, Options, Profile, Report, Value, system_clock};

const INTERFACE: &str = "bindings/tests/suite.lua";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Outcome<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}

fn interface() -> Outcome<Arc<Interface>> {
    Ok(Arc::new(Interface::load(Path::new(INTERFACE))?))
}

fn pairs(words: &[String]) -> impl Iterator<Item = (&str, &str)> {
    words.iter().filter_map(|word| word.split_once('='))
}

fn profile(text: &str) -> Profile {
    if text == "close" { Profile::Close } else { Profile::Keepalive }
}

fn duration(text: &str) -> Outcome<Duration> {
    Ok(Duration::from_secs_f64(text.parse()?))
}

// The server

static BOO_COUNT: AtomicU64 = AtomicU64::new(0);

fn answer(method: &str, mut arguments: Vec<Value>) -> Result<Vec<Value>, String> {
    let number = |at: usize| arguments.get(at).and_then(Value::number).unwrap_or_default();
    let bytes = |at: usize| arguments.get(at).and_then(Value::bytes).unwrap_or_default().to_vec();
    Ok(match method {
        "boo" => {
            BOO_COUNT.fetch_add(1, Ordering::SeqCst);
            arguments.insert(0, Value::Nil);
            arguments
        }
        "add" => vec![(number(0) + number(1)).into()],
        "echo" | "char" => arguments,
        "nothing" => vec![Value::Nil],
        "letter" => vec![Value::Char(b'x')],
        "all" => {
            let Some(Value::Char(char)) = arguments.first() else { return Err("no char".to_owned()) };
            let (text, number) = (bytes(1), number(3));
            let longer = [&text[..], &[*char]].concat();
            let doubled = Value::Double(number * 2.0);
            vec![(number + 1.0).into(), Value::Char(*char), longer.into(), doubled, Value::Nil, text.into()]
        }
        "booCount" => vec![(BOO_COUNT.load(Ordering::SeqCst) as f64).into()],
        "fail" => return Err(String::from_utf8_lossy(&bytes(0)).into_owned()),
        "returnsText" => vec!["text".into()],
        "returnsTooFew" => vec![1.0.into()],
        "returnsAnError" => vec!["___ERRORPC: not one".into()],
        "returnsInfinity" => vec![f64::INFINITY.into()],
        "long" => vec![vec![b'x'; number(0) as usize].into()],
        _ => return Err(format!("{method} is not offered")),
    })
}

fn serve_until_killed(words: &[String]) -> Outcome<()> {
    let (mut options, mut port) = (Options::default(), 0u16);
    for (key, text) in pairs(words) {
        match key {
            "profile" => options.profile = profile(text),
            "pool" => options.connections_max = text.parse()?,
            "seconds" => options.transfer_ms_max = duration(text)?.as_millis() as u64,
            "idle_seconds" => options.idle_ms_max = duration(text)?.as_millis() as u64,
            "line_bytes" => options.line_bytes_max = text.parse()?,
            "port" => port = text.parse()?,
            _ => return Err(format!("no server has the option {key}").into()),
        }
    }
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let service = Arc::new(Function::new(true, answer));
    let server = serve(listener, interface()?, service, options, system_clock())?;
    println!("{}", server.address().port());
    loop {
        std::thread::park();
    }
}

// The client

fn open(words: &[String]) -> Outcome<Client> {
    let [host, port, rest @ ..] = words else { return Err("open NAME HOST PORT".into()) };
    let mut options = CallOptions::default();
    for (key, text) in pairs(rest) {
        match key {
            "profile" => options.profile = profile(text),
            "seconds" => options.timeout = duration(text)?,
            "line_bytes" => options.line_bytes_max = text.parse()?,
            "chars" if text == "bare" => options.chars = CharForm::Bare,
            "chars" => options.chars = CharForm::Quoted,
            // This client never needs it.
            "repeatable" => {}
            _ => return Err(format!("no client has the option {key}").into()),
        }
    }
    Ok(Client::new(&format!("{host}:{port}"), interface()?, options, system_clock()))
}

/// A word as a value. A text is a char where the interface wants one: the other languages have one type for both.
fn value_of(word: &str, is_char: bool) -> Outcome<Value> {
    let (kind, rest) = word.split_at_checked(1).ok_or("an empty word")?;
    let bytes = match kind {
        "d" => return Ok(Value::Double(rest.parse()?)),
        "s" => unhex(rest)?,
        "r" => vec![b'x'; rest.parse()?],
        _ => return Ok(Value::Nil),
    };
    match bytes.as_slice() {
        [byte] if is_char => Ok(Value::Char(*byte)),
        _ => Ok(bytes.into()),
    }
}

fn word_of(value: &Value) -> String {
    match value {
        Value::Nil => "n".to_owned(),
        Value::Double(number) => format!("d{number:e}"),
        Value::Char(byte) => format!("s{}", hex(&[*byte])),
        Value::String(bytes) => format!("s{}", hex(bytes)),
    }
}

fn call(client: &mut Client, words: &[String]) -> Outcome<String> {
    let [method, arguments @ ..] = words else { return Err("call NAME METHOD".into()) };
    let found = client.interface().method(method.as_bytes());
    let kinds: Vec<_> = found.map(|method| method.sent().collect()).unwrap_or_default();
    let is_char = |at: usize| kinds.get(at).is_some_and(|kind| kind.name() == "char");
    let values: Outcome<Vec<Value>> =
        arguments.iter().enumerate().map(|(at, word)| value_of(word, is_char(at))).collect();
    let answer = client.call(method, &values?).map_err(|report| {
        let prefix = match report {
            Report::Remote { .. } => "___ERRORPC: ",
            Report::Network { .. } => "___ERRONET: ",
            _ => "",
        };
        format!("{prefix}{report}")
    })?;
    Ok(answer.iter().map(|value| format!(" {}", word_of(value))).collect())
}

fn command(line: &str, clients: &mut HashMap<String, Client>) -> Outcome<String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let [what, name, rest @ ..] = words.as_slice() else { return Err("a command has two words".into()) };
    match what.as_str() {
        "open" => clients.insert(name.clone(), open(rest)?),
        "close" => clients.remove(name),
        _ => return call(clients.get_mut(name).ok_or("no such proxy")?, rest),
    };
    Ok(String::new())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, options @ ..] = arguments.as_slice()
        && role == "server"
    {
        return serve_until_killed(options).inspect_err(|error| println!("error {error}"));
    }
    let mut clients = HashMap::new();
    for line in std::io::stdin().lines() {
        match command(&line?, &mut clients) {
            Ok(values) => println!("ok{values}"),
            Err(error) => println!("error {}", hex(error.to_string().as_bytes())),
        }
    }
    Ok(())
}
