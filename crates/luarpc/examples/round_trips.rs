//! Calls a second, beside TCP round trips of the same bytes.
//!
//! `cargo run --release -p vazao-luarpc --example round_trips [SECONDS] [ROUNDS]` takes turns, so that all see the
//! same machine, and prints each round and the quotients of the means. The servers run in a process of their own (this
//! program, started again), as in a real cluster. `round_trips close CALLS` makes so many calls with a connection for
//! each, and counts those that fail.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use vazao_luarpc::client::CallOptions;
use vazao_luarpc::server::{Function, serve};
use vazao_luarpc::{Client, Interface, Options, Profile, Value};
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
    let boo = Arc::new(boo);
    let start = |profile: Profile| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let options = Options { profile, ..Options::default() };
        serve(listener, Arc::clone(&interface), boo.clone(), options, Arc::new(SystemClock))
    };
    let (keeping, closing) = (start(Profile::Keepalive)?, start(Profile::Close)?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}\n{}\n{}", keeping.address(), closing.address(), listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || raw(stream));
    }
    Ok(())
}

/// Addresses of the servers: one that keeps connections, one that closes them, and the plain one.
fn started() -> Outcome<(Child, [String; 3])> {
    let mut child = Command::new(std::env::current_exe()?).arg("--serve").stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let mut next =
        || lines.next().ok_or("the servers have ended")?.map_err(Into::<Box<dyn std::error::Error>>::into);
    let addresses = [next()?, next()?, next()?];
    Ok((child, addresses))
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

fn client_of(address: &str, profile: Profile) -> Outcome<Client> {
    let interface = Arc::new(Interface::parse(INTERFACE.as_bytes())?);
    let options = CallOptions { profile, ..CallOptions::default() };
    Ok(Client::new(address, interface, options, Arc::new(SystemClock)))
}

/// Calls that each have a connection of their own.
fn measure_closing(address: &str, calls: u64) -> Outcome {
    let mut client = client_of(address, Profile::Close)?;
    let (begun_ns, mut failed) = (SystemClock.now_ns(), 0);
    for number in 0..calls {
        if let Err(report) = client.call("boo", &[Value::Double(1.0)]) {
            failed += 1;
            println!("call {number}: {report}");
        }
    }
    let seconds = SystemClock.now_ns().saturating_sub(begun_ns) as f64 / 1e9;
    println!("{calls} calls, a connection for each: {failed} failed, {:.0} calls/s", calls as f64 / seconds);
    Ok(())
}

fn measure([calls, _, raw]: &[String; 3], seconds: f64, rounds: usize) -> Outcome {
    let mut client = client_of(calls, Profile::Keepalive)?;
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
    let (mut child, addresses) = started()?;
    let outcome = match arguments.as_slice() {
        [word, calls] if word == "close" => measure_closing(&addresses[1], calls.parse()?),
        _ => {
            let seconds = arguments.first().map_or(Ok(1.0), |text| text.parse())?;
            let rounds = arguments.get(1).map_or(Ok(5), |text| text.parse())?;
            measure(&addresses, seconds, rounds)
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    outcome
}
