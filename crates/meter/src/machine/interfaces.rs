//! Network interfaces: their counters, the rate their driver states, and what a shaper lets through.

use super::{shaper, text};
use crate::measures::Link;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType};

/// All interfaces of this network namespace but loopback, which is memory.
pub fn links() -> Vec<Link> {
    let shaped = shaper::rates();
    let mut links = counters(&text("/proc/self/net/dev"));
    let Ok(socket) = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None) else { return links };
    for link in &mut links {
        let Ok(index) = name_to_index(&socket, &link.name) else { continue };
        link.shaped = i32::try_from(index).ok().and_then(|index| shaped.get(&index).copied());
        // /sys may show the interfaces of another network namespace than this process's, by the same names.
        let of_sys = |file: &str| text(format!("/sys/class/net/{}/{file}", link.name));
        if of_sys("ifindex").trim().parse() == Ok(index) {
            link.rate = rate(&of_sys("speed"));
        }
    }
    links
}

fn counters(dev: &str) -> Vec<Link> {
    let line = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let fields: Vec<u64> = counters.split_ascii_whitespace().filter_map(|v| v.parse().ok()).collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        let name = name.trim().to_owned();
        Some(Link { name, received_bytes: field(0), sent_bytes: field(8), ..Link::default() })
    };
    dev.lines().filter_map(line).filter(|link| link.name != "lo").collect()
}

/// Megabits a second in bytes a second; virtual interfaces report -1 or a number that limits nothing.
fn rate(speed: &str) -> Option<f64> {
    let megabits: f64 = speed.trim().parse().ok()?;
    (megabits > 0.0).then_some(megabits * 1e6 / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_from_their_columns_and_loopback_is_left_out() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  \
                    eth0: 81 2 0 0 0 0 0 0 388 9 0 0 0 0 0 0\n";
        let found = counters(text);
        let eth0 = found.last().expect("is there");
        assert_eq!((eth0.name.as_str(), eth0.received_bytes, eth0.sent_bytes), ("eth0", 81, 388));
        assert!(found.iter().all(|link| link.name != "lo"));
        assert_eq!(counters("eth0:")[0].sent_bytes, 0);
    }

    #[test]
    fn an_unknown_speed_is_no_rate() {
        assert_eq!(rate("1000\n"), Some(125e6));
        assert_eq!(rate("-1"), None);
        assert_eq!(rate(""), None);
    }
}
