//! What the machine can do without us: raw TCP over loopback, the yardstick of the library's rates.
//!
//! A sender and a receiver for each connection, two threads, move bytes with calls of a given size and default socket
//! buffers. Nothing is computed and the receiver throws the bytes away, so this is a ceiling, not a rival.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use vazao_meter::Clock;

/// Seconds from the first byte sent to the last received when `total_bytes` go through one loopback connection.
pub fn tcp_stream_seconds(clock: &dyn Clock, total_bytes: u64, call_bytes: usize) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    let (receiver, _) = listener.accept()?;
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, call_bytes));
        let calls = vec![0x5a; call_bytes];
        let start_ns = clock.now_ns();
        let sent = send(&sender, total_bytes, &calls);
        drop(sender);
        let received = receiving.join().map_err(|_| io::Error::other("the receiving thread panicked"))??;
        let end_ns = clock.now_ns();
        sent?;
        if received != total_bytes {
            return Err(io::Error::other(format!("{received} of {total_bytes} bytes arrived")));
        }
        Ok(end_ns.saturating_sub(start_ns) as f64 / 1e9)
    })
}

/// The same with `connections` at once, each carrying an equal share: from the first start to the last end.
pub fn tcp_streams_seconds(
    clock: &dyn Clock,
    connections: u32,
    total_bytes: u64,
    call_bytes: usize,
) -> io::Result<f64> {
    let share = total_bytes / u64::from(connections.max(1));
    let start_ns = clock.now_ns();
    let outcomes: Vec<io::Result<f64>> = std::thread::scope(|scope| {
        let streams: Vec<_> = (0..connections.max(1))
            .map(|_| scope.spawn(|| tcp_stream_seconds(clock, share, call_bytes)))
            .collect();
        let panicked = || io::Error::other("a thread of a stream panicked");
        streams.into_iter().map(|stream| stream.join().map_err(|_| panicked())?).collect()
    });
    outcomes.into_iter().collect::<io::Result<Vec<f64>>>()?;
    Ok(clock.now_ns().saturating_sub(start_ns) as f64 / 1e9)
}

fn send(mut stream: &TcpStream, total_bytes: u64, call: &[u8]) -> io::Result<()> {
    let mut left = total_bytes;
    while left > 0 {
        let length = left.min(call.len() as u64) as usize;
        stream.write_all(&call[..length])?;
        left -= length as u64;
    }
    Ok(())
}

fn receive(mut stream: &TcpStream, call_bytes: usize) -> io::Result<u64> {
    let mut buffer = vec![1; call_bytes];
    let mut received = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(received),
            n => received += n as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_arrive_whatever_the_size_of_the_calls() {
        let clock = vazao_meter::SystemClock;
        for (total, call) in [(1, 1 << 20), (1 << 20, 1000), (3_000_001, 65_536)] {
            let seconds = tcp_stream_seconds(&clock, total, call).expect("loopback works");
            assert!(seconds > 0.0 && seconds < 60.0);
            let seconds = tcp_streams_seconds(&clock, 3, total, call).expect("loopback works");
            assert!(seconds > 0.0 && seconds < 60.0);
        }
    }
}
