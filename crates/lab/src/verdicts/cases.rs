//! The cases: what is throttled, what is done, and what the verdict has to name.

use vazao_meter::bottleneck::{Direction, Kind, Resource, Verdict};

/// Something made slow on purpose.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Throttle {
    /// The disk of a data server, counted from 1, or of all of them: 28 MB/s.
    Disk(Option<usize>),
    /// The link of a host: 100 Mb/s each way.
    Link(String),
    /// The way to the client's host: 20 ms each way.
    Delay,
    /// The CPU of a daemon.
    Cpu(String, f64),
    /// The CPU of the client.
    ClientCpu(f64),
}

/// What is done meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    /// One large file read by so many threads.
    Read(u32),
    /// One file a thread written and synced.
    Write(u32),
    /// Many small files made.
    Create,
}

/// Through which door.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Door {
    Library,
    Mount,
}

/// What has to be named.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Expected {
    pub(super) resource: Resource,
    /// Any of these; empty for any at all.
    pub(super) places: Vec<String>,
    /// Any of these; empty for any at all.
    pub(super) kinds: Vec<Kind>,
    /// Which way its bytes go there; `None` where it has none.
    pub(super) direction: Option<Direction>,
}

impl Expected {
    pub(super) fn is_met_by(&self, verdict: &Verdict) -> bool {
        self.resource == verdict.resource
            && (self.places.is_empty() || self.places.contains(&verdict.place))
            && (self.kinds.is_empty() || self.kinds.contains(&verdict.kind))
            && self.direction == verdict.direction
    }

    /// The same of bytes that `load` moves: a disk is read or written, and what a server sends a client receives.
    fn of_load(&self, load: Load) -> Expected {
        let has_way = matches!(self.resource, Resource::Disk | Resource::Network);
        let is_client = self.places.iter().any(|place| place == CLIENT);
        let is_read = matches!(load, Load::Read(_));
        let direction = if is_read == is_client { Direction::Into } else { Direction::OutOf };
        Expected { direction: has_way.then_some(direction), ..self.clone() }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = if self.places.is_empty() { "any".to_owned() } else { self.places.join("/") };
        let way = self.direction.map_or(String::new(), |direction| format!("{} ", direction.words()));
        write!(f, "{} {way}{places}", self.resource.name())
    }
}

/// One case.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) servers: usize,
    pub(super) throttles: Vec<Throttle>,
    pub(super) load: Load,
    pub(super) door: Door,
    pub(super) expected: Expected,
}

/// The name by which the client is known in verdicts of the library.
const CLIENT: &str = "client";

fn expect(resource: Resource, places: &[&str]) -> Expected {
    let kinds = match resource {
        // What a group allows is seen at the device, too, where that has a queue.
        Resource::Disk => vec![Kind::Allowed, Kind::Busy],
        Resource::Network => vec![Kind::Link, Kind::Way],
        Resource::RoundTrip => vec![Kind::Window],
        _ => Vec::new(),
    };
    let places = places.iter().map(|place| (*place).to_owned()).collect();
    Expected { resource, places, kinds, direction: None }
}

fn quota(place: &str) -> Expected {
    expect_kind(Resource::Cpu, Kind::Quota, &[place])
}

fn expect_kind(resource: Resource, kind: Kind, places: &[&str]) -> Expected {
    Expected { kinds: vec![kind], ..expect(resource, places) }
}

/// Both ways, one and several threads where that makes a difference.
fn both(
    what: &str,
    servers: usize,
    threads: u32,
    door: Door,
    throttles: &[Throttle],
    expected: &Expected,
) -> Vec<Case> {
    let case = |load: Load, way: &str| Case {
        name: format!(
            "{servers}-{}-{way}{threads}-{what}",
            if door == Door::Mount { "mount" } else { "library" }
        ),
        servers,
        throttles: throttles.to_vec(),
        load,
        door,
        expected: expected.of_load(load),
    };
    vec![case(Load::Read(threads), "read"), case(Load::Write(threads), "write")]
}

/// All cases, those with one server first.
pub(super) fn cases() -> Vec<Case> {
    let mut all = one_server();
    all.extend(three_servers());
    all
}

fn one_server() -> Vec<Case> {
    use Door::{Library, Mount};
    let link = |host: &str| Throttle::Link(host.to_owned());
    let cpu = |name: &str, processors| Throttle::Cpu(name.to_owned(), processors);
    let disk = expect(Resource::Disk, &["data1"]);
    let network = |place: &str| expect(Resource::Network, &[place]);
    let any_cpu = expect(Resource::Cpu, &[]);
    let mut all = Vec::new();
    all.extend(both("disk", 1, 1, Library, &[Throttle::Disk(Some(1))], &disk));
    all.extend(both("disk", 1, 4, Library, &[Throttle::Disk(Some(1))], &disk));
    all.extend(both("link-data1", 1, 1, Library, &[link("data1")], &network("data1")));
    all.extend(both("link-data1", 1, 4, Library, &[link("data1")], &network("data1")));
    all.extend(both("link-client", 1, 1, Library, &[link("client1")], &network(CLIENT)));
    all.extend(both("delay", 1, 1, Library, &[Throttle::Delay], &expect(Resource::RoundTrip, &["data1"])));
    all.extend(both("cpu-data1", 1, 1, Library, &[cpu("data1", 0.1)], &quota("data1")));
    all.extend(both("cpu-data1", 1, 4, Library, &[cpu("data1", 0.1)], &quota("data1")));
    let client_cpu = [Throttle::ClientCpu(0.05)];
    all.extend(both("cpu-client", 1, 1, Library, &client_cpu, &quota(CLIENT)));
    all.extend(both("cpu-client", 1, 4, Library, &client_cpu, &quota(CLIENT)));
    all.extend(both("free", 1, 4, Library, &[], &any_cpu));
    let mixed = [Throttle::Disk(Some(1)), Throttle::Cpu("data1".to_owned(), 1.0)];
    all.extend(both("disk-and-mild-cpu", 1, 4, Library, &mixed, &disk));
    all.extend(both("disk", 1, 1, Mount, &[Throttle::Disk(Some(1))], &disk));
    all.extend(both("link-data1", 1, 1, Mount, &[link("data1")], &network("data1")));
    all.extend(both("cpu-data1", 1, 1, Mount, &[cpu("data1", 0.1)], &quota("data1")));
    all.extend(both("delay", 1, 1, Mount, &[Throttle::Delay], &expect(Resource::RoundTrip, &["data1"])));
    let creates = |what: &str, throttle: Throttle, expected: Expected| Case {
        name: format!("1-library-create-{what}"),
        servers: 1,
        throttles: vec![throttle],
        load: Load::Create,
        door: Library,
        expected,
    };
    all.push(creates("cpu-meta1", cpu("meta1", 0.05), quota("meta1")));
    all.push(creates(
        "delay",
        Throttle::Delay,
        expect_kind(Resource::RoundTrip, Kind::OneAtATime, &["meta1"]),
    ));
    all
}

fn three_servers() -> Vec<Case> {
    use Door::Library;
    let link = |host: &str| Throttle::Link(host.to_owned());
    let all_data = ["data1", "data2", "data3"];
    let mut all = Vec::new();
    let (one, every) = ([Throttle::Disk(Some(2))], [Throttle::Disk(None)]);
    all.extend(both("disk-data2", 3, 4, Library, &one, &expect(Resource::Disk, &["data2"])));
    all.extend(both("disks", 3, 4, Library, &every, &expect(Resource::Disk, &all_data)));
    all.extend(both("link-data2", 3, 4, Library, &[link("data2")], &expect(Resource::Network, &["data2"])));
    all.extend(both("link-client", 3, 4, Library, &[link("client1")], &expect(Resource::Network, &[CLIENT])));
    all.extend(both("delay", 3, 1, Library, &[Throttle::Delay], &expect(Resource::RoundTrip, &all_data)));
    let server = [Throttle::Cpu("data2".to_owned(), 0.05)];
    all.extend(both("cpu-data2", 3, 4, Library, &server, &quota("data2")));
    let client = [Throttle::ClientCpu(0.05)];
    all.extend(both("cpu-client", 3, 4, Library, &client, &quota(CLIENT)));
    all.extend(both("free", 3, 4, Library, &[], &expect(Resource::Cpu, &[])));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_more_than_forty_cases_and_no_two_of_one_name() {
        let all = cases();
        let names: BTreeSet<&str> = all.iter().map(|case| case.name.as_str()).collect();
        assert!(all.len() >= 40 && names.len() == all.len(), "{} cases", all.len());
    }

    #[test]
    fn a_right_resource_in_the_wrong_place_is_a_miss() {
        let expected = expect(Resource::Disk, &["data2"]);
        let verdict = |resource, place: &str| {
            let kind = if resource == Resource::Disk { Kind::Busy } else { Kind::Quota };
            Verdict { resource, place: place.to_owned(), kind, ..Verdict::default() }
        };
        assert!(expected.is_met_by(&verdict(Resource::Disk, "data2")));
        assert!(!expected.is_met_by(&verdict(Resource::Disk, "data1")));
        assert!(!expected.is_met_by(&verdict(Resource::Cpu, "data2")));
        assert!(expect(Resource::Cpu, &[]).is_met_by(&verdict(Resource::Cpu, "data2")));
    }

    /// "network into data1" counted as a hit for a read, which comes out of it, and "each limited by its window" for
    /// creates, of which each waits for an answer.
    #[test]
    fn the_right_resource_in_the_right_place_by_another_kind_or_the_other_way_is_a_miss() {
        let find = |name: &str| cases().into_iter().find(|case| case.name == name).expect("a case").expected;
        let verdict = |resource, place: &str, kind, direction| {
            let place = place.to_owned();
            Verdict { resource, place, kind, direction, ..Verdict::default() }
        };
        let (into, out_of) = (Some(Direction::Into), Some(Direction::OutOf));
        let read = find("1-library-read1-link-data1");
        assert!(read.is_met_by(&verdict(Resource::Network, "data1", Kind::Link, out_of)));
        assert!(!read.is_met_by(&verdict(Resource::Network, "data1", Kind::Link, into)));
        let client = find("1-library-read1-link-client");
        assert!(client.is_met_by(&verdict(Resource::Network, CLIENT, Kind::Link, into)));
        let written = find("1-mount-write1-disk");
        assert!(written.is_met_by(&verdict(Resource::Disk, "data1", Kind::Allowed, into)));
        assert!(!written.is_met_by(&verdict(Resource::Disk, "data1", Kind::Allowed, out_of)));
        assert!(!written.is_met_by(&verdict(Resource::Disk, "data1", Kind::Unseen, into)));
        let creates = find("1-library-create-delay");
        assert!(creates.is_met_by(&verdict(Resource::RoundTrip, "meta1", Kind::OneAtATime, None)));
        assert!(!creates.is_met_by(&verdict(Resource::RoundTrip, "meta1", Kind::Window, None)));
    }
}
