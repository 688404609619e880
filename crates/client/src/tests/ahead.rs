//! Connections to the servers of a file: which are asked for before a request needs them.

use super::*;
use parking_lot::Mutex;
use std::collections::HashSet;
use vazao_wire::Method;
use vazao_wire::transport::{Pending, Transport};

/// Remembers what it was asked to connect to. A server is connected to with the first request, or ahead of it.
struct Connecting {
    carrier: Arc<InlineTransport>,
    connected: Mutex<HashSet<String>>,
    ahead: Mutex<Vec<Vec<String>>>,
}

impl Connecting {
    fn open(cluster: &Cluster) -> (Arc<Connecting>, Client) {
        let carrier = Arc::clone(&cluster.transport);
        let connecting =
            Arc::new(Connecting { carrier, connected: Mutex::default(), ahead: Mutex::default() });
        let transport = Arc::clone(&connecting) as Arc<dyn Transport>;
        let client = Client::open(transport, vec![META.to_owned()], Cluster::options()).expect("opens");
        (connecting, client)
    }

    fn take_ahead(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.ahead.lock())
    }
}

impl Transport for Connecting {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        self.connected.lock().insert(address.to_owned());
        self.carrier.submit(address, method, message, attachment, deadline_ns)
    }

    fn is_connected(&self, address: &str) -> bool {
        self.connected.lock().contains(address)
    }

    fn connect_ahead(&self, addresses: &[&str], deadline_ns: u64) {
        assert!(deadline_ns > self.clock().now_ns(), "there is time left for it");
        let addresses: Vec<String> = addresses.iter().map(|address| (*address).to_owned()).collect();
        self.connected.lock().extend(addresses.iter().cloned());
        self.ahead.lock().push(addresses);
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.carrier.clock()
    }
}

fn servers(numbers: std::ops::RangeInclusive<u32>) -> Vec<String> {
    numbers.map(|number| format!("data:{number}")).collect()
}

/// Writing took nine seconds over a long link where one server took seven: its four connections were made one after the
/// other.
#[test]
fn the_first_request_of_a_striped_file_has_the_other_servers_connected_to_at_the_same_time() {
    let cluster = Cluster::new(4);
    let (connecting, client) = Connecting::open(&cluster);
    let file = create(&client, "wide");
    let bytes = pattern(1, 1_000_000);
    file.write_at(&bytes, 0).unwrap();
    file.flush().unwrap();
    assert_eq!(connecting.take_ahead(), [servers(2..=4)], "once for all of them");
    let (connecting, reader) = Connecting::open(&cluster);
    let file = reader.open_file(file.inode(), super::files::READ).unwrap();
    let mut read = vec![0; bytes.len()];
    file.read_at(&mut read, 0).unwrap();
    assert!(read == bytes);
    assert_eq!(connecting.take_ahead(), [servers(2..=4)]);
    file.read_at(&mut read[..10], 500_000).unwrap();
    assert!(connecting.take_ahead().is_empty(), "all are there");
}

#[test]
fn a_file_on_one_server_needs_no_other() {
    let cluster = Cluster::new(1);
    let (connecting, client) = Connecting::open(&cluster);
    let file = create(&client, "narrow");
    file.write_at(&pattern(2, 300_000), 0).unwrap();
    file.flush().unwrap();
    assert!(connecting.take_ahead().is_empty());
}

#[test]
fn of_a_very_wide_file_only_the_next_servers_are_connected_to() {
    let cluster = Cluster::new(40);
    let (connecting, client) = Connecting::open(&cluster);
    let file = create(&client, "very wide");
    file.write_at(&pattern(3, UNIT as usize + 100), 0).unwrap();
    file.flush().unwrap();
    assert_eq!(connecting.take_ahead(), [servers(2..=17)]);
}
