//! Remote calls to a node: the interface `vazao.lua`, what answers it, and the secret that callers prove to know.
//!
//! A door like the others: it translates and decides nothing. The protocol itself is the crate `vazao-luarpc`.

mod arguments;
mod copies;
mod files;
mod overview;
mod record;
mod secret;
mod section;
mod service;

pub(crate) use secret::Secret;
pub(crate) use section::{DEADLINE_MS, LuarpcSection};
pub(crate) use service::Opener;

use crate::failure::{Failure, Outcome};
use service::Serving;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use tracing::info;
use vazao_luarpc::{Interface, Options, Running};
use vazao_meter::{Clock, Exposition};

pub(crate) use vazao_luarpc::server::Statistics;

/// What the interface file is called; where none of this name is, the one in the program is meant.
pub(crate) const INTERFACE_NAME: &str = "vazao.lua";

const INTERFACE: &str = include_str!("vazao.lua");

/// Calls that are carried out at once. Some wait for up to ten seconds for something to happen.
const CALLS_MAX: usize = 16;

/// The thread that reads requests has a tenth of the weight of one that serves files: an attack on the port slows those
/// no further, on a processor that both want.
const NICENESS: u8 = 10;

/// The interface of nodes.
pub(crate) fn interface() -> Outcome<Interface> {
    Interface::parse(INTERFACE.as_bytes()).map_err(|wrong| Failure::new(format!("{INTERFACE_NAME}, {wrong}")))
}

/// Answers remote calls as `section` says, from threads of its own.
pub(crate) fn serve(section: &LuarpcSection, open: Opener, clock: &Arc<dyn Clock>) -> Outcome<Running> {
    let at = &section.listen;
    let secret = section.secret_file.as_deref().map(|file: &Path| Secret::load(file)).transpose()?;
    let refused = |what: String| Failure::new(format!("remote calls on {at}: {what}"));
    let listener = TcpListener::bind(at).map_err(|error| {
        refused(format!(
            "{error}; choose another port: --luarpc, or listen in [luarpc] of the node's configuration"
        ))
    })?;
    let address = listener.local_addr().map_err(|error| refused(error.to_string()))?;
    // The configuration was checked by the name; this is what the name has turned out to be.
    if !address.ip().is_loopback() && secret.is_none() {
        return Err(refused(format!("{address} is reached from other machines; {}", section::SECRET_NEEDED)));
    }
    let may_write = section.write;
    let service = Arc::new(Serving::new(open, may_write, secret, Arc::clone(clock)));
    let options = Options { workers: CALLS_MAX, niceness: NICENESS, ..Options::default() };
    let running =
        vazao_luarpc::server::serve(listener, Arc::new(interface()?), service, options, Arc::clone(clock));
    let running = running.map_err(|error| refused(error.to_string()))?;
    info!(address = %running.address(), may_write, "answering remote calls");
    Ok(running)
}

/// Adds what is counted of remote calls to a node's metrics.
pub(crate) fn expose(statistics: &Statistics, exposition: &mut Exposition) {
    let mut counter = |name: &str, help: &str, value: u64| exposition.counter(name, help, &[], value as f64);
    counter("vazao_calls_total", "Remote calls answered, errors included.", statistics.calls());
    counter("vazao_calls_failed_total", "Remote calls answered with an error.", statistics.errors());
    let help = "Connections of remote callers closed to make room for others.";
    counter("vazao_calls_evicted_total", help, statistics.evicted());
    let mut gauge = |name: &str, help: &str, value: u64| exposition.gauge(name, help, &[], value as f64);
    gauge("vazao_calls_connections", "Connections of remote callers.", statistics.connections());
    let help = "Memory of requests and answers that are not whole.";
    gauge("vazao_calls_memory_bytes", help, statistics.memory_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_in_the_program_is_one() {
        let interface = interface().expect("an interface");
        assert_eq!(interface.name.as_deref(), Some("vazao"));
        let method = interface.method(b"read").expect("a method");
        assert_eq!(method.signature(), "read(in string, in double, in double, out string) -> double");
    }
}
