//! Addresses of a test's own: a server that is ended and started again gets its port back only where no other test,
//! and no connection of one, can have been given it meanwhile.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

/// A loopback address that no other process of this machine chooses. Connections that are made without choosing an
/// address come from 127.0.0.1, so that they take no port here.
pub fn own_host() -> Ipv4Addr {
    // The kernel's process numbers have 22 bits at most.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 100 + high, middle, low)
}

/// Where a cluster of this test may have its ports, ten in a row: below those that the kernel gives to connections, and
/// elsewhere than those of other tests that run at the same time.
pub fn own_ports() -> u16 {
    static CLUSTERS: AtomicU32 = AtomicU32::new(0);
    // Processes that run at the same time have numbers near one another.
    let number = std::process::id().wrapping_mul(31).wrapping_add(CLUSTERS.fetch_add(1, Ordering::Relaxed));
    10_000 + (number % 2_200) as u16 * 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_port_of_an_own_address_is_another_than_that_of_the_usual_one_and_not_taken_by_who_connects() {
        let usual = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = usual.local_addr().expect("bound").port();
        let own = TcpListener::bind((own_host(), port)).expect("the same port of another address");
        let from = TcpStream::connect((own_host(), port)).expect("connects").local_addr().expect("connected");
        assert_eq!(
            (own.local_addr().expect("bound").ip(), from.ip()),
            (own_host().into(), Ipv4Addr::LOCALHOST.into())
        );
    }
}
