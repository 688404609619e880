//! Links between machines that are cut for a while: which messages do not arrive.
//!
//! A message goes one way. A link that is cut one way loses the requests of one machine and its answers to the other's;
//! the other's requests arrive, and their answers do not. A request that is sent in the moment of a cut was under way:
//! it arrives, and its answer is lost.

use std::time::Duration;

/// A machine of a cluster. The order of the variants has no meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Machine {
    /// Of the metadata service (0) or a data server (from 1).
    Server(usize),
    /// Of a client, by its number.
    Client(u64),
}

/// A link that is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// What this machine sends does not arrive.
    pub from: Machine,
    /// At this machine.
    pub to: Machine,
    /// What goes the other way arrives.
    pub is_one_way: bool,
    /// The link loses everything for so long, carries everything for as long, and so on.
    pub flapping: Option<Duration>,
    /// Until the link is whole again.
    pub duration: Duration,
}

/// A message on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message<'a> {
    pub(super) from: (Machine, &'a str),
    pub(super) to: (Machine, &'a str),
    pub(super) is_answer: bool,
}

/// What a cut lies across.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Across {
    Link(Cut),
    /// All links of a machine.
    All(Machine),
    /// Everything that enters or leaves a zone.
    Zone(String),
}

impl Across {
    fn is_crossed_by(&self, message: &Message<'_>) -> bool {
        let (from, to) = (message.from, message.to);
        match self {
            Across::All(machine) => from.0 == *machine || to.0 == *machine,
            Across::Zone(zone) => (from.1 == zone) != (to.1 == zone),
            Across::Link(cut) => {
                (from.0, to.0) == (cut.from, cut.to)
                    || (!cut.is_one_way && (to.0, from.0) == (cut.from, cut.to))
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Lasting {
    across: Across,
    since_ns: u64,
    until_ns: u64,
    /// Of a link that flaps: how long it loses, and then carries, everything.
    half_ns: Option<u64>,
}

impl Lasting {
    fn loses(&self, message: &Message<'_>, now_ns: u64) -> bool {
        let is_under_way = !message.is_answer && now_ns == self.since_ns;
        let is_down = match self.half_ns {
            Some(half_ns) => (now_ns.saturating_sub(self.since_ns) / half_ns).is_multiple_of(2),
            None => true,
        };
        now_ns < self.until_ns && is_down && !is_under_way && self.across.is_crossed_by(message)
    }
}

/// The links that are cut.
#[derive(Default, Debug)]
pub(super) struct Links {
    cuts: Vec<Lasting>,
}

impl Links {
    fn add(&mut self, across: Across, half: Option<Duration>, duration: Duration, now_ns: u64) {
        self.cuts.retain(|cut| now_ns < cut.until_ns);
        let until_ns = now_ns + duration.as_nanos() as u64;
        let half_ns = half.map(|half| (half.as_nanos() as u64).max(1));
        self.cuts.push(Lasting { across, since_ns: now_ns, until_ns, half_ns });
    }

    pub(super) fn cut(&mut self, cut: Cut, now_ns: u64) {
        self.add(Across::Link(cut), cut.flapping, cut.duration, now_ns);
    }

    pub(super) fn cut_off(&mut self, machine: Machine, duration: Duration, now_ns: u64) {
        self.add(Across::All(machine), None, duration, now_ns);
    }

    pub(super) fn cut_off_zone(&mut self, zone: &str, duration: Duration, now_ns: u64) {
        self.add(Across::Zone(zone.to_owned()), None, duration, now_ns);
    }

    /// All links are whole.
    pub(super) fn mend(&mut self) {
        self.cuts.clear();
    }

    pub(super) fn loses(&self, message: &Message<'_>, now_ns: u64) -> bool {
        self.cuts.iter().any(|cut| cut.loses(message, now_ns))
    }

    /// Whether any link is cut, or flaps, at the moment.
    pub(super) fn are_cut(&self, now_ns: u64) -> bool {
        self.cuts.iter().any(|cut| now_ns < cut.until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Machine = Machine::Server(1);
    const TWO: Machine = Machine::Server(2);
    const CLIENT: Machine = Machine::Client(1);
    const SECOND_NS: u64 = 1_000_000_000;

    fn message(from: Machine, to: Machine, is_answer: bool) -> Message<'static> {
        Message { from: (from, ""), to: (to, ""), is_answer }
    }

    fn cut(is_one_way: bool, flapping: Option<Duration>) -> Links {
        let mut links = Links::default();
        let cut = Cut { from: ONE, to: TWO, is_one_way, flapping, duration: Duration::from_secs(10) };
        links.cut(cut, 0);
        links
    }

    #[test]
    fn a_link_that_is_cut_loses_what_goes_either_way_and_other_links_lose_nothing() {
        let links = cut(false, None);
        for (from, to, is_lost) in
            [(ONE, TWO, true), (TWO, ONE, true), (CLIENT, ONE, false), (TWO, CLIENT, false)]
        {
            assert_eq!(links.loses(&message(from, to, false), SECOND_NS), is_lost, "{from:?} to {to:?}");
        }
        assert!(!links.loses(&message(ONE, TWO, false), 10 * SECOND_NS), "it is whole again");
    }

    #[test]
    fn a_link_cut_one_way_carries_requests_the_other_way_and_loses_their_answers() {
        let links = cut(true, None);
        assert!(links.loses(&message(ONE, TWO, false), 1), "requests of the one");
        assert!(!links.loses(&message(TWO, ONE, false), 1), "requests of the other");
        assert!(links.loses(&message(ONE, TWO, true), 1), "answers to them");
    }

    #[test]
    fn a_request_sent_in_the_moment_of_a_cut_arrives_and_its_answer_is_lost() {
        let links = cut(false, None);
        assert!(!links.loses(&message(ONE, TWO, false), 0) && links.loses(&message(TWO, ONE, true), 0));
    }

    #[test]
    fn a_link_that_flaps_is_down_and_up_in_turn() {
        let links = cut(false, Some(Duration::from_secs(2)));
        let is_lost = |second: u64| links.loses(&message(ONE, TWO, true), second * SECOND_NS);
        assert_eq!(
            (0..11).map(is_lost).collect::<Vec<_>>(),
            [1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0].map(|it| it == 1)
        );
    }

    #[test]
    fn a_zone_that_is_cut_off_is_whole_within() {
        let mut links = Links::default();
        links.cut_off_zone("rio", Duration::from_secs(1), 0);
        let between = |from, to| Message { from: (ONE, from), to: (TWO, to), is_answer: true };
        let is_lost = [("rio", "rio"), ("rio", ""), ("", "rio"), ("", "bra")]
            .map(|(a, b)| links.loses(&between(a, b), 1));
        assert_eq!(is_lost, [false, true, true, false]);
    }
}
