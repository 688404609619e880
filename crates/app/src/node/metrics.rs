//! `/metrics` (Prometheus text) and `/healthz` of a node.

use crate::failure::{Failure, Outcome};
use std::net::SocketAddr;
use std::sync::Arc;
use tiny_http::{Header, Response, Server};
use vazao_meter::Exposition;
use vazao_meter::cpu::process_use;

/// What a node says of itself over HTTP.
pub(crate) trait Observed: Send + Sync + 'static {
    /// Adds its metrics.
    fn expose(&self, exposition: &mut Exposition);
    /// What is wrong, if anything is.
    fn trouble(&self) -> Option<String>;
}

/// Answers on `listen` from a thread of its own until the process ends. Returns the address.
pub(crate) fn serve(listen: &str, other_port: bool, observed: Arc<dyn Observed>) -> Outcome<SocketAddr> {
    let server = match Server::http(listen) {
        Err(_) if other_port => Server::http(super::daemon::any_port(listen)),
        other => other,
    };
    let server = server.map_err(|e| {
        Failure::new(format!("metrics on {listen}: {e}; choose another port in the node's configuration"))
    })?;
    let address = server.server_addr().to_ip();
    let address = address.ok_or_else(|| Failure::new(format!("metrics on {listen}: not an IP address")))?;
    let answer = move || {
        for request in server.incoming_requests() {
            let path = request.url().split('?').next().unwrap_or_default().to_owned();
            let response = match path.as_str() {
                "/metrics" => metrics(&*observed),
                "/healthz" => health(&*observed),
                _ => Response::from_string("there are /metrics and /healthz\n").with_status_code(404),
            };
            // A scraper that went away has nothing to be told.
            let _ = request.respond(response);
        }
    };
    let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(answer);
    thread.map_err(|e| Failure::new(format!("starting a thread: {e}")))?;
    Ok(address)
}

type Text = Response<std::io::Cursor<Vec<u8>>>;

fn metrics(observed: &dyn Observed) -> Text {
    let mut exposition = Exposition::new();
    observed.expose(&mut exposition);
    process(&mut exposition);
    let response = Response::from_string(exposition.finish());
    match Header::from_bytes("Content-Type", "text/plain; version=0.0.4; charset=utf-8") {
        Ok(header) => response.with_header(header),
        Err(()) => response,
    }
}

fn health(observed: &dyn Observed) -> Text {
    match observed.trouble() {
        None => Response::from_string("ok\n"),
        Some(trouble) => Response::from_string(format!("{trouble}\n")).with_status_code(503),
    }
}

/// The names that Prometheus's own client libraries use for these.
fn process(exposition: &mut Exposition) {
    let Ok(used) = process_use(None) else { return };
    let cpu = used.user_s + used.system_s;
    exposition.counter("process_cpu_seconds_total", "CPU time of this process.", &[], cpu);
    exposition.gauge("process_resident_memory_bytes", "Resident memory.", &[], used.resident_bytes as f64);
    exposition.gauge(
        "process_resident_memory_peak_bytes",
        "Largest resident memory so far.",
        &[],
        used.resident_peak_bytes as f64,
    );
    exposition.gauge("process_threads", "Threads.", &[], used.threads as f64);
}
