//! Measures what a stand-in really does: round trips by small datagrams, rates by one TCP stream.

use super::Error;
use super::namespace::Namespace;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vazao_meter::{Clock, SystemClock};

/// One end of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) address: Ipv4Addr,
}

impl End<'_> {
    fn datagrams(&self) -> Result<UdpSocket, Error> {
        self.namespace.inside(|| UdpSocket::bind((self.address, 0)))?.map_err(Error::at(self.address))
    }
}

/// The shortest round trip of `rounds` answered ones: what the path takes when the processor does not hold it up.
/// `timeout` is how long an answer may take before it counts as lost.
pub(crate) fn round_trip(
    from: End<'_>,
    to: End<'_>,
    rounds: u32,
    timeout: Duration,
) -> Result<Duration, Error> {
    let (here, there) = (from.datagrams()?, to.datagrams()?);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&there, &stop));
        let result = ping(&here, &there, rounds, timeout);
        stop.store(true, Ordering::Relaxed);
        result
    })
    .map_err(Error::at(format!("measuring the round trip from {} to {}", from.address, to.address)))
}

fn echo(socket: &UdpSocket, stop: &AtomicBool) {
    let _ = socket.set_read_timeout(Some(Duration::from_millis(20)));
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, sender)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], sender);
        }
    }
}

fn ping(here: &UdpSocket, there: &UdpSocket, rounds: u32, timeout: Duration) -> std::io::Result<Duration> {
    const LOST_MAX: u32 = 8;
    let target = there.local_addr()?;
    here.set_read_timeout(Some(timeout))?;
    let (mut best_ns, mut answered, mut lost) = (u64::MAX, 0, 0);
    while answered < rounds {
        match one_round(here, target, answered + lost) {
            Ok(taken_ns) => {
                best_ns = best_ns.min(taken_ns);
                answered += 1;
            }
            Err(error) if lost == LOST_MAX => return Err(error),
            Err(_) => lost += 1,
        }
    }
    Ok(Duration::from_nanos(best_ns))
}

fn one_round(here: &UdpSocket, target: SocketAddr, number: u32) -> std::io::Result<u64> {
    let start_ns = SystemClock.now_ns();
    here.send_to(&number.to_le_bytes(), target)?;
    let mut answer = [0; 4];
    loop {
        // A late answer to an earlier round is not this round's.
        if here.recv(&mut answer)? == answer.len() && answer == number.to_le_bytes() {
            return Ok(SystemClock.now_ns() - start_ns);
        }
    }
}

/// The payload of one TCP stream in bits a second, taken at the receiver for `measured` after `warm_up`.
pub(crate) fn tcp_rate(
    from: End<'_>,
    to: End<'_>,
    warm_up: Duration,
    measured: Duration,
) -> Result<f64, Error> {
    let listener =
        to.namespace.inside(|| TcpListener::bind((to.address, 0)))?.map_err(Error::at(to.address))?;
    let target = listener.local_addr().map_err(Error::at(to.address))?;
    let sender = from.namespace.inside(|| TcpStream::connect(target))?.map_err(Error::at(target))?;
    let (receiver, _) = listener.accept().map_err(Error::at(target))?;
    std::thread::scope(|scope| {
        scope.spawn(|| send_until_refused(&sender));
        let rate = receive(&receiver, warm_up, measured);
        // Wakes the sender from a full buffer.
        let _ = sender.shutdown(std::net::Shutdown::Both);
        rate
    })
    .map_err(Error::at(format!("measuring the rate from {} to {}", from.address, to.address)))
}

fn send_until_refused(mut sender: &TcpStream) {
    let block = vec![0x5a; 128 << 10];
    while sender.write_all(&block).is_ok() {}
}

fn receive(mut receiver: &TcpStream, warm_up: Duration, measured: Duration) -> std::io::Result<f64> {
    receiver.set_read_timeout(Some(warm_up + measured + Duration::from_secs(5)))?;
    let mut buffer = vec![0; 256 << 10];
    let mut receive_for = |duration: Duration| {
        let (start_ns, mut bytes) = (SystemClock.now_ns(), 0);
        loop {
            bytes += receiver.read(&mut buffer)? as u64;
            let passed_ns = SystemClock.now_ns() - start_ns;
            if u128::from(passed_ns) >= duration.as_nanos() {
                return Ok(bytes as f64 * 8e9 / passed_ns as f64);
            }
        }
    };
    receive_for(warm_up).and_then(|_| receive_for(measured))
}
