//! Nodes start although something beside what they are for is in the way.

use crate::support::{Cluster, wait_until};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use vazao_testing::addresses::own_host;

/// A connection that some program had made from the port which a node had for its metrics before kept the node from
/// starting again.
#[test]
fn a_node_whose_metrics_port_is_taken_serves_and_opens_the_port_when_it_is_free() {
    let cluster = Cluster::start_on_own_ports(1);
    cluster.kill("data1");
    let metrics = format!("{}:9100", own_host());
    let file = cluster.dir().join("nodes/data1/node.toml");
    let text = fs::read_to_string(&file).expect("it has one");
    let with_port = |line: &str| match line.starts_with("metrics = ") {
        true => format!("metrics = \"{metrics}\"\n"),
        false => format!("{line}\n"),
    };
    fs::write(&file, text.lines().map(with_port).collect::<String>()).expect("written");
    let taken = TcpListener::bind(&metrics).expect("no other test has this address");
    cluster.up(&[]);
    cluster.ok(&["ls", "vz:/"]);
    let log = || fs::read_to_string(cluster.dir().join("log/data1.log")).expect("there is a log");
    assert!(
        cluster.notice("data1")["metrics"].is_null() && log().contains("it is tried again every second"),
        "{}",
        log()
    );
    drop(taken);
    wait_until("metrics are served", || {
        let mut said = String::new();
        let asked = TcpStream::connect(&metrics).and_then(|mut stream| {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            stream.read_to_string(&mut said)
        });
        asked.is_ok() && said.starts_with("HTTP/1.1 200 OK\r\n")
    });
}
