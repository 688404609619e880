//! `/metrics` (Prometheus text) and `/healthz` of a node.

use super::config::any_port;
use super::http::{self, Page, Pages};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use vazao_meter::cpu::process_use;
use vazao_meter::{Clock, Exposition};

/// What a node says of itself over HTTP.
pub(crate) trait Observed: Send + Sync + 'static {
    /// Adds its metrics.
    fn expose(&self, exposition: &mut Exposition);
    /// What is wrong, if anything is.
    fn trouble(&self) -> Option<String>;
}

/// Answers on `listen` from a thread of its own until the process ends. Returns the address.
pub(crate) fn serve(
    listen: &str,
    other_port: bool,
    observed: Arc<dyn Observed>,
    clock: &Arc<dyn Clock>,
) -> io::Result<SocketAddr> {
    let pages: Arc<dyn Pages> = Arc::new(Observing(observed));
    let start = |at: &str| http::serve(at, Arc::clone(&pages), Arc::clone(clock));
    match start(listen) {
        Err(_) if other_port => start(&any_port(listen)),
        other => other,
    }
}

/// The pages about a node.
struct Observing(Arc<dyn Observed>);

impl Pages for Observing {
    fn page(&self, path: &str) -> Page {
        match path {
            "/metrics" => metrics(&*self.0),
            "/healthz" => health(&*self.0),
            _ => Page::text(404, "there are /metrics and /healthz\n"),
        }
    }
}

fn metrics(observed: &dyn Observed) -> Page {
    let mut exposition = Exposition::new();
    observed.expose(&mut exposition);
    process(&mut exposition);
    Page::metrics(exposition.finish())
}

fn health(observed: &dyn Observed) -> Page {
    match observed.trouble() {
        None => Page::text(200, "ok\n"),
        Some(trouble) => Page::text(503, &format!("{trouble}\n")),
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
