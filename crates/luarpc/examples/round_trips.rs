//! Calls a second over one connection, beside TCP round trips of the same bytes.
//!
//! `cargo run --release -p vazao-luarpc --example round_trips [SECONDS] [ROUNDS]` takes turns, so that all see the
//! same machine, and prints each round and the quotients of the means. The servers run in a process of their own (this
//! program, started again), as in a real cluster.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use vazao_luarpc::client::CallOptions;
use vazao_luarpc::server::{Function, serve};
use vazao_luarpc::{Client, Interface, Options, Value};
use vazao_meter::{Clock, SystemClock};

const INTERFACE: &str =
    "interface{ name = minha, methods = { boo = { args = {{direction='inout', type='double'}} } } }";
const REQUEST: &[u8] = b"boo\n1\n";
const ANSWER: &[u8] = b"nil\n1\n";

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Reads a request of the same length and answers with the same bytes.
fn raw(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; REQUEST.len()];
    loop {
        stream.read_exact(&mut buffer)?;
        stream.write_all(ANSWER)?;
    }
}

fn servers() -> Outcome {
    let interface = Arc::new(Interface::parse(INTERFACE.as_bytes())?);
    let boo = Function::new(true, |_: &str, mut arguments: Vec<Value>| {
        arguments.insert(0, Value::Nil);
        Ok(arguments)
    });
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let running = serve(listener, interface, Arc::new(boo), Options::default(), Arc::new(SystemClock))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}\n{}", running.address(), listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || raw(stream));
    }
    Ok(())
}

fn started() -> Outcome<(Child, String, String)> {
    let mut child = Command::new(std::env::current_exe()?).arg("--serve").stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let mut next =
        || lines.next().ok_or("the servers have ended")?.map_err(Into::<Box<dyn std::error::Error>>::into);
    let (calls, raw) = (next()?, next()?);
    Ok((child, calls, raw))
}

/// How often `once` can be done in a time, for each second of it.
fn rate(seconds: f64, mut once: impl FnMut() -> Outcome) -> Outcome<f64> {
    let begun_ns = SystemClock.now_ns();
    let mut count = 0u64;
    loop {
        once()?;
        count += 1;
        let passed = SystemClock.now_ns().saturating_sub(begun_ns) as f64 / 1e9;
        if passed >= seconds {
            return Ok(count as f64 / passed);
        }
    }
}

/// One round trip of the bytes of a call, with nothing around it.
fn round_trip(stream: &mut TcpStream) -> Outcome {
    let mut answer = [0; ANSWER.len()];
    stream.write_all(REQUEST)?;
    Ok(stream.read_exact(&mut answer)?)
}

fn connect(address: &str) -> Outcome<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn measure(calls: &str, raw: &str, seconds: f64, rounds: usize) -> Outcome {
    let interface = Arc::new(Interface::parse(INTERFACE.as_bytes())?);
    let mut client = Client::new(calls, interface, CallOptions::default(), Arc::new(SystemClock));
    let (mut plain, mut to_server) = (connect(raw)?, connect(calls)?);
    let mut sums = [0.0; 3];
    for round in 0..rounds {
        let rates = [
            rate(seconds, || Ok(client.call("boo", &[Value::Double(1.0)]).map(|_| ())?))?,
            rate(seconds, || round_trip(&mut to_server))?,
            rate(seconds, || round_trip(&mut plain))?,
        ];
        let [calls, server, tcp] = rates;
        println!(
            "round {round}: {calls:>7.0} calls/s, {server:>7.0} of the server alone, {tcp:>7.0} TCP round trips/s"
        );
        sums.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate);
    }
    let [calls, server, tcp] = sums.map(|sum| sum / rounds.max(1) as f64);
    println!(
        "mean: {calls:.0} calls/s ({:.3} of TCP), the server alone {:.3} of TCP",
        calls / tcp,
        server / tcp
    );
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "it was killed just before")]
fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|argument| argument == "--serve") {
        return servers();
    }
    let seconds = arguments.first().map_or(Ok(1.0), |text| text.parse())?;
    let rounds = arguments.get(1).map_or(Ok(5), |text| text.parse())?;
    let (mut child, calls, raw) = started()?;
    let outcome = measure(&calls, &raw, seconds, rounds);
    let _ = child.kill();
    let _ = child.wait();
    outcome
}
