//! A server or a client of the measurement of remote calls, as a process of its own; `load.lua` and `load.py` beside
//! take the same words.
//!
//! `server PROTOCOL ADDRESS PROFILE SECONDS` prints its port and serves for so long. `client PROTOCOL HOST PORT PROFILE
//! METHOD SECONDS timed|untimed` calls for so long and prints calls, errors, seconds, seconds of the processor, the
//! milliseconds that 50, 95 and 99 % of the calls took at most (0 when untimed), and what the last error said.

use super::INTERFACE;
use crate::{Context, Error};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use vazao_luarpc::client::CallOptions;
use vazao_luarpc::server::{Function, serve};
use vazao_luarpc::{Client, Interface, Options, Profile, Value};

/// A call takes no longer.
const CALL_WITHIN: Duration = Duration::from_secs(5);
/// How often a server looks whether its time is over.
const POLL: Duration = Duration::from_millis(50);
/// Latencies that are kept.
const LATENCIES_MAX: usize = 1_000_000;
/// `boo(1)` on the line.
const REQUEST: &[u8] = b"boo\n1\n";
const ANSWER: &[u8] = b"nil\n1\n";

/// `vazao lab run` starts these; not for people.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Protocol {
    Luarpc,
    /// The bytes of the same calls and nothing around them.
    Raw,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Kept {
    Close,
    Keepalive,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Latencies {
    Timed,
    Untimed,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Role {
    Server {
        protocol: Protocol,
        address: IpAddr,
        profile: Kept,
        seconds: f64,
    },
    Client {
        protocol: Protocol,
        host: IpAddr,
        port: u16,
        profile: Kept,
        method: String,
        seconds: f64,
        latencies: Latencies,
    },
}

/// Serves or calls.
pub fn run(args: &Args, context: &mut Context<'_>) -> Result<(), Error> {
    let failed = |error: String| Error::Failed(error);
    let interface = Interface::parse(INTERFACE.as_bytes()).map_err(|error| failed(error.to_string()))?;
    let interface = Arc::new(interface);
    match &args.role {
        &Role::Server { protocol, address, profile, seconds } => {
            let listener = TcpListener::bind((address, 0)).map_err(Error::at(address))?;
            let port = listener.local_addr().map_err(Error::at(address))?.port();
            let running = match protocol {
                Protocol::Luarpc => Some(serve_calls(listener, interface, profile, context)?),
                Protocol::Raw => serve_raw(listener, profile).map(|()| None)?,
            };
            say(context, &port.to_string())?;
            let end_ns = context.clock.now_ns() + nanoseconds(seconds);
            while context.clock.now_ns() < end_ns && context.stop.check().is_ok() {
                context.clock.sleep(POLL);
            }
            drop(running);
            Ok(())
        }
        Role::Client { protocol, host, port, profile, method, seconds, latencies } => {
            let address = SocketAddr::new(*host, *port);
            let mut once: Box<dyn FnMut() -> Result<(), String>> = match protocol {
                Protocol::Luarpc => caller(address, interface, *profile, method, context)?,
                Protocol::Raw => raw_caller(address, *profile),
            };
            let said = call(context, &mut *once, *seconds, *latencies == Latencies::Timed);
            say(context, &said)
        }
    }
}

fn say(context: &mut Context<'_>, line: &str) -> Result<(), Error> {
    let written = writeln!(context.output, "{line}").and_then(|()| context.output.flush());
    written.map_err(Error::at("standard output"))
}

fn nanoseconds(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds).map_or(0, |time| time.as_nanos() as u64)
}

fn profile_of(kept: Kept) -> Profile {
    if kept == Kept::Close { Profile::Close } else { Profile::Keepalive }
}

fn serve_calls(
    listener: TcpListener,
    interface: Arc<Interface>,
    kept: Kept,
    context: &Context<'_>,
) -> Result<vazao_luarpc::Running, Error> {
    let service = Function::new(true, |method: &str, arguments: Vec<Value>| match (method, &arguments[..]) {
        ("foo", [Value::Double(one), Value::Double(other)]) => {
            Ok(vec![Value::Double(one + other), Value::from("text")])
        }
        _ => Ok(std::iter::once(Value::Nil).chain(arguments).collect()),
    });
    let options = Options { profile: profile_of(kept), ..Options::default() };
    let running = serve(listener, interface, Arc::new(service), options, context.clock.clone());
    running.map_err(Error::at("serving calls"))
}

/// Answers each request of the length of `boo(1)`, each connection on a thread.
fn serve_raw(listener: TcpListener, kept: Kept) -> Result<(), Error> {
    let accept = move || {
        for stream in listener.incoming().flatten() {
            // A client that went away has its own error to tell.
            let answering = move || drop(answer_raw(stream, kept));
            if kept == Kept::Close {
                answering();
            } else if std::thread::Builder::new().spawn(answering).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("raw".to_owned()).spawn(accept).map_err(Error::at("a thread")).map(drop)
}

fn answer_raw(mut stream: TcpStream, kept: Kept) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; REQUEST.len()];
    loop {
        stream.read_exact(&mut buffer)?;
        stream.write_all(ANSWER)?;
        if kept == Kept::Close {
            return stream.shutdown(Shutdown::Write);
        }
    }
}

type Caller = Box<dyn FnMut() -> Result<(), String>>;

fn caller(
    address: SocketAddr,
    interface: Arc<Interface>,
    kept: Kept,
    method: &str,
    context: &Context<'_>,
) -> Result<Caller, Error> {
    let options = CallOptions { profile: profile_of(kept), timeout: CALL_WITHIN, ..CallOptions::default() };
    let (arguments, expected) = match method {
        "boo" => (vec![Value::Double(1.0)], vec![Value::Nil, Value::Double(1.0)]),
        "foo" => {
            let arguments = vec![Value::Double(1.0), Value::Double(2.0)];
            (arguments, vec![Value::Double(3.0), Value::from("text")])
        }
        _ => return Err(Error::Usage(format!("{method}: no such call; there are boo and foo"))),
    };
    let mut client = Client::new(&address.to_string(), interface, options, context.clock.clone());
    let method = method.to_owned();
    Ok(Box::new(move || {
        let answer = client.call(&method, &arguments).map_err(|error| error.to_string())?;
        if answer == expected { Ok(()) } else { Err(format!("{method} answered {answer:?}")) }
    }))
}

fn raw_caller(address: SocketAddr, kept: Kept) -> Caller {
    let mut stream = None;
    Box::new(move || {
        let result = raw_call(&mut stream, address, kept);
        if kept == Kept::Close || result.is_err() {
            stream = None;
        }
        result.map_err(|error| format!("{address}: {error}"))
    })
}

fn raw_call(stream: &mut Option<TcpStream>, address: SocketAddr, kept: Kept) -> io::Result<()> {
    let stream = match stream {
        Some(stream) => stream,
        None => {
            let new = TcpStream::connect_timeout(&address, CALL_WITHIN)?;
            new.set_nodelay(true)?;
            new.set_read_timeout(Some(CALL_WITHIN))?;
            new.set_write_timeout(Some(CALL_WITHIN))?;
            stream.insert(new)
        }
    };
    stream.write_all(REQUEST)?;
    let mut answer = [0; ANSWER.len()];
    stream.read_exact(&mut answer)?;
    if answer != *ANSWER {
        return Err(io::Error::other(format!("answered {:?}", String::from_utf8_lossy(&answer))));
    }
    if kept == Kept::Close {
        // Closing first would leave the port in TIME_WAIT here; after the server's end a reset leaves it nowhere.
        if stream.read(&mut answer)? != 0 {
            return Err(io::Error::other("more came than the answer"));
        }
        rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO))?;
    }
    Ok(())
}

fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Calls for a time; the line that says what came of it.
fn call(
    context: &Context<'_>,
    once: &mut dyn FnMut() -> Result<(), String>,
    seconds: f64,
    is_timed: bool,
) -> String {
    let (mut calls, mut errors, mut said, mut latencies_ns) = (0u64, 0u64, String::new(), Vec::new());
    // Connects. What goes wrong goes wrong again below, and is counted there.
    let _ = once();
    let (processor, begun_ns) = (processor_s(), context.clock.now_ns());
    let (mut now_ns, end_ns) = (begun_ns, begun_ns + nanoseconds(seconds));
    while now_ns < end_ns && context.stop.check().is_ok() {
        let before_ns = now_ns;
        let outcome = once();
        now_ns = context.clock.now_ns();
        match outcome {
            Ok(()) => {
                calls += 1;
                if is_timed && latencies_ns.len() < LATENCIES_MAX {
                    latencies_ns.push(now_ns - before_ns);
                }
            }
            Err(error) => (errors, said) = (errors + 1, error.replace('\n', " ")),
        }
    }
    let processor = processor_s() - processor;
    latencies_ns.sort_unstable();
    let [p50, p95, p99] = [0.50, 0.95, 0.99].map(|share| percentile_ms(&latencies_ns, share));
    let seconds = (now_ns - begun_ns) as f64 / 1e9;
    format!("{calls} {errors} {seconds:.6} {processor:.6} {p50:.6} {p95:.6} {p99:.6} {said}")
}

/// Milliseconds that `share` of the calls took at most.
fn percentile_ms(sorted_ns: &[u64], share: f64) -> f64 {
    let at = ((sorted_ns.len() as f64 * share).ceil() as usize).saturating_sub(1);
    sorted_ns.get(at).map_or(0.0, |&latency_ns| latency_ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_smallest_latency_that_so_many_calls_stay_within() {
        let sorted: Vec<u64> = (1..=100).map(|ms| ms * 1_000_000).collect();
        assert_eq!([0.50, 0.95, 0.99].map(|share| percentile_ms(&sorted, share)), [50.0, 95.0, 99.0]);
        assert_eq!([0.50, 0.99].map(|share| percentile_ms(&sorted[..1], share)), [1.0, 1.0]);
        assert_eq!(percentile_ms(&[], 0.5), 0.0);
    }
}
