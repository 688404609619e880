//! Servers that do not answer while a request waits for a connection to them.
//!
//! An attempt at a connection ends before a request counts as slow. So the attempts at one server count together, those
//! of all threads and all requests: each alone would never be reported.

use parking_lot::Mutex;

/// A row of attempts without an answer.
#[derive(Clone, Copy)]
struct Row {
    since_ns: u64,
    /// When an attempt of it was last made or ended.
    latest_ns: u64,
}

/// Since when the attempts at connections to one server have been unanswered.
#[derive(Default)]
pub(super) struct UnansweredConnects(Mutex<Option<Row>>);

impl UnansweredConnects {
    /// A request waits for a connection from now on. Returns since when such requests have waited, unless that was
    /// more than `gap_ns` ago.
    pub(super) fn begin(&self, now_ns: u64, gap_ns: u64) -> u64 {
        let mut row = self.0.lock();
        let lasting = row.filter(|row| now_ns.saturating_sub(row.latest_ns) <= gap_ns);
        let since_ns = lasting.map_or(now_ns, |row| row.since_ns);
        *row = Some(Row { since_ns, latest_ns: now_ns });
        since_ns
    }

    /// An attempt was not answered in its time.
    pub(super) fn note_unanswered(&self, now_ns: u64) {
        if let Some(row) = self.0.lock().as_mut() {
            row.latest_ns = now_ns;
        }
    }

    /// The server has answered, be it with a refusal.
    pub(super) fn note_answer(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ClusterKey;
    use crate::operation::Method;
    use crate::tcp::{TcpTransport, TransportOptions};
    use crate::transport::Transport;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::time::Duration;
    use vazao_meter::{Clock, SystemClock};

    #[test]
    fn attempts_in_a_row_count_from_the_first_until_an_answer_or_a_gap() {
        let unanswered = UnansweredConnects::default();
        assert_eq!(unanswered.begin(100, 50), 100);
        unanswered.note_unanswered(130);
        assert_eq!(unanswered.begin(180, 50), 100);
        unanswered.note_unanswered(200);
        assert_eq!(unanswered.begin(251, 50), 251, "nothing was asked for in between");
        unanswered.note_answer();
        assert_eq!(unanswered.begin(260, 50), 260);
    }

    /// A transport, and its reports: the method, and milliseconds waited.
    type Watched = (Arc<TcpTransport>, Arc<Mutex<Vec<(Method, u64)>>>);

    fn watched(options: TransportOptions) -> Watched {
        let key = ClusterKey::generate().expect("randomness");
        let transport = TcpTransport::new(key, options, Arc::new(SystemClock));
        let told: Arc<Mutex<Vec<_>>> = Arc::default();
        let telling = Arc::clone(&told);
        transport.watch(Box::new(move |slow| telling.lock().push((slow.method, slow.waited_ns / 1_000_000))));
        (transport, told)
    }

    /// A server that hangs: its machine completes connections, and nothing reads what is sent over them.
    fn hanging() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound").to_string();
        (listener, address)
    }

    fn ping(transport: &TcpTransport, address: &str) {
        let deadline_ns = SystemClock.now_ns() + 20_000_000_000;
        transport.submit(address, Method::Ping, &[], &[], deadline_ns).wait().expect_err("nobody answers");
    }

    #[test]
    fn a_request_that_waits_for_a_connection_is_told_of_while_it_waits() {
        let options = TransportOptions { slow_ms: 50, connect_ms_max: 1_000, ..TransportOptions::default() };
        let (transport, told) = watched(options);
        let (_listener, address) = hanging();
        ping(&transport, &address);
        let told = told.lock();
        let [(method, waited_ms)] = told[..] else { panic!("{told:?}") };
        assert!(method == Method::Ping && waited_ms >= 50, "{told:?}");
    }

    #[test]
    fn a_request_that_is_not_sent_in_time_fails_however_long_its_answer_may_take() {
        let (transport, _) =
            watched(TransportOptions { connect_ms_max: 60_000, ..TransportOptions::default() });
        let (_listener, address) = hanging();
        let now_ns = SystemClock.now_ns();
        let (sent_by_ns, deadline_ns) = (now_ns + 50_000_000, now_ns + 60_000_000_000);
        let asked = transport.submit_sent_by(&address, Method::Ping, &[], &[], sent_by_ns, deadline_ns);
        assert!(asked.wait().expect_err("nobody answers").code.is_silence());
        assert!(SystemClock.now_ns() < deadline_ns);
    }

    // A copy sent one block after the other to a server that hung: each block waited for a connection for 3 s, and
    // nothing was reported for 48 s.
    #[test]
    fn requests_that_wait_for_a_connection_one_after_the_other_are_told_of_together() {
        const ATTEMPTS_MAX: usize = 100;
        let options = TransportOptions { slow_ms: 600, connect_ms_max: 100, ..TransportOptions::default() };
        let (transport, told) = watched(options);
        let (_listener, address) = hanging();
        let attempts = (0..ATTEMPTS_MAX).take_while(|_| told.lock().is_empty());
        let made = attempts.inspect(|_| ping(&transport, &address)).count();
        let told = told.lock();
        assert!(told.first().is_some_and(|(_, waited_ms)| *waited_ms >= 600), "{made}: {told:?}");
        assert!(made > 1, "one attempt is too short: {told:?}");
    }

    #[test]
    fn a_request_that_waits_for_another_threads_connection_is_told_of() {
        let options = TransportOptions {
            slow_ms: 50,
            connect_ms_max: 1_000,
            connections_max: 1,
            ..TransportOptions::default()
        };
        let (transport, told) = watched(options);
        let (_listener, address) = hanging();
        // In the background, for no request in particular.
        let until_ns = SystemClock.now_ns() + 20_000_000_000;
        transport.connect_ahead(&[&address], until_ns);
        while !transport.is_connected(&address) {
            assert!(SystemClock.now_ns() < until_ns, "nobody connects");
            SystemClock.sleep(Duration::from_millis(1));
        }
        ping(&transport, &address);
        assert_eq!(told.lock().len(), 1);
    }
}
