//! R1: datagrams of many sizes over a gigabit link: what is sent, what arrives, with small and large receive buffers,
//! beside the wire's theory (figure 1 of the gigabit study).

use super::outcome::{Figure, Finding, Form, Series};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::hosts::{BitsPerSecond, Host, Network};
use crate::report::size::{MB, format_size};
use rustix::net::sockopt;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// UDP over a gigabit link.
pub(super) struct R1;

const LINK: BitsPerSecond = BitsPerSecond(1_000_000_000);
/// Payloads; the last is what an Ethernet frame carries.
const SIZES: [usize; 8] = [32, 64, 128, 200, 400, 700, 1000, 1472];
const RECEIVE_BUFFERS: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Ethernet, IPv4 and UDP headers, as the link's rate counts them.
const HEADERS_BYTES: f64 = 14.0 + 20.0 + 8.0;
/// So that a sender waits for the link instead of filling a queue that drops.
const SEND_BUFFER_BYTES: usize = 32 << 10;
const SENT: &str = "sent";
const THEORY: &str = "the wire's theory";

impl Experiment for R1 {
    fn about(&self) -> About {
        About {
            id: "R1",
            title: "UDP at a gigabit: rate sent and received against the size of datagrams and of the receive buffer",
            source: "Gigabit networks and RAID 0, figure 1",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let mut network = Network::new()?;
        let (from, to) = (network.add_host("sender")?, network.add_host("receiver")?);
        from.set_rate(Some(LINK))?;
        to.set_rate(Some(LINK))?;
        let x: Vec<String> = SIZES.iter().map(usize::to_string).collect();
        let title = "Sent: payload a second that leaves the sender";
        let mut sent = Figure::new("sent", title, ("bytes of a datagram", x.clone()), "MB/s", Form::Lines);
        let title = "Received: payload a second that reaches the program, by receive buffer";
        let mut received = Figure::new("received", title, ("bytes of a datagram", x), "MB/s", Form::Lines);
        let theory = SIZES.map(theory_mb_per_s);
        sent.published.push(Series::published(THEORY, &theory));
        received.published.push(Series::published(THEORY, &theory));
        for _ in 0..lab.repetitions() {
            for (at, &size) in SIZES.iter().enumerate() {
                for &buffer in &RECEIVE_BUFFERS {
                    let flow = flow(lab, &from, &to, size, buffer)?;
                    sent.series_mut(SENT).record(at, flow.sent_mb_per_s);
                    received.series_mut(&buffer_name(buffer)).record(at, flow.received_mb_per_s);
                }
            }
        }
        Ok(Measured {
            scale: format!("{} ms a flow, {} repetitions", duration(lab).as_millis(), lab.repetitions()),
            setup: vec![format!(
                "Two hosts (network namespaces) behind links of {} Mb/s, token buckets that count whole Ethernet frames; \
                 dashed is the payload that leaves room for the headers.",
                LINK.0 / 1_000_000
            )],
            figures: vec![sent, received],
            gaps: Vec::new(),
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let sent = |at: usize| figure(figures, "sent")?.median(SENT, at);
        let received =
            |buffer: usize, at: usize| figure(figures, "received")?.median(&buffer_name(buffer), at);
        let share = |rate: Option<f64>, at: usize| rate.map(|rate| rate / theory_mb_per_s(SIZES[at]) * 100.0);
        let (small, large) = (share(sent(0), 0), share(sent(SIZES.len() - 1), SIZES.len() - 1));
        let at = 3;
        let by_buffer = RECEIVE_BUFFERS.map(|buffer| received(buffer, at));
        let grows = by_buffer[0].zip(by_buffer[2]).map(|(least, most)| most > least * 1.02);
        vec![
            Finding::new(
                "Small datagrams do not fill the link, large ones do",
                small.zip(large).map(|(small, large)| small < 90.0 && large >= 90.0),
                format!(
                    "{} bytes: {} % of theory, {}: {} %",
                    SIZES[0],
                    shown(small),
                    SIZES[SIZES.len() - 1],
                    shown(large)
                ),
            ),
            Finding::new(
                "Receivers lose less with a larger receive buffer",
                grows,
                format!(
                    "at {} bytes: {} MB/s with 4 KiB, 64 KiB, 1 MiB; sent {}",
                    SIZES[at],
                    by_buffer.map(shown).join(", "),
                    shown(sent(at))
                ),
            ),
        ]
    }
}

fn buffer_name(bytes: usize) -> String {
    format!("receive buffer {}", format_size(bytes as u64))
}

fn theory_mb_per_s(payload: usize) -> f64 {
    let payload = payload as f64;
    LINK.0 as f64 / 8.0 / MB * payload / (payload + HEADERS_BYTES)
}

fn duration(lab: &Lab) -> Duration {
    Duration::from_millis(lab.scaled(300, 3000))
}

struct Flow {
    sent_mb_per_s: f64,
    received_mb_per_s: f64,
}

/// Sends as fast as the link takes it, and counts at both ends over the same time.
fn flow(lab: &Lab, from: &Host, to: &Host, size: usize, buffer: usize) -> Result<Flow, Error> {
    let at = |host: &Host| Error::at(format!("UDP on {}", host.name()));
    let receiver = to.inside(|| UdpSocket::bind((to.address(), 0)))?.map_err(at(to))?;
    sockopt::set_socket_recv_buffer_size(&receiver, buffer).map_err(|e| at(to)(e.into()))?;
    receiver.set_read_timeout(Some(Duration::from_millis(20))).map_err(at(to))?;
    let sender = from.inside(|| UdpSocket::bind((from.address(), 0)))?.map_err(at(from))?;
    sockopt::set_socket_send_buffer_size(&sender, SEND_BUFFER_BYTES).map_err(|e| at(from)(e.into()))?;
    sender.connect(receiver.local_addr().map_err(at(to))?).map_err(at(from))?;
    let stop = AtomicBool::new(false);
    let (sent, received, seconds) = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, size, &stop));
        let sending = scope.spawn(|| send(&sender, size, &stop));
        let start_ns = lab.clock.now_ns();
        lab.clock.sleep(duration(lab));
        stop.store(true, Ordering::Relaxed);
        let seconds = lab.clock.now_ns().saturating_sub(start_ns) as f64 / 1e9;
        (sending.join(), receiving.join(), seconds)
    });
    let panicked = |_| Error::Failed("a thread of R1 panicked".to_owned());
    let rate = |datagrams: u64| datagrams as f64 * size as f64 / seconds / MB;
    let sent = sent.map_err(panicked)?.map_err(at(from))?;
    Ok(Flow { sent_mb_per_s: rate(sent), received_mb_per_s: rate(received.map_err(panicked)?) })
}

/// Datagrams that the link took: a send waits while the send buffer is full.
fn send(socket: &UdpSocket, size: usize, stop: &AtomicBool) -> std::io::Result<u64> {
    let datagram = vec![0x5a; size];
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        socket.send(&datagram)?;
        count += 1;
    }
    Ok(count)
}

fn receive(socket: &UdpSocket, size: usize, stop: &AtomicBool) -> u64 {
    let mut datagram = vec![0; size + 1];
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        if socket.recv(&mut datagram).is_ok_and(|length| length == size) {
            count += 1;
        }
    }
    count
}
