//! What leaves a machine is shared among its connections, where its own link is what they wait for.
//!
//! The kernel gives each connection a share of a link's queue that grows with its rate, and bounds bursts by the
//! shortest round trip that the connection has seen. So one that is made while the queue is full gets hardly anything:
//! 1 of 100 Mb/s beside eight readers, for as long as these go on. What one server sends to another, which programs
//! wait for, starves then, and so do single readers (docs/decisions/shared-links.md).
//!
//! States:
//!
//! - *looking*: with each turn each connection's bytes are compared with those of the others. A connection *starves*
//!   that had bytes to send all the time and moved less than a quarter of the mean, for [`STARVED_TURNS`] turns, while
//!   those that move most have a queue before them. One to another server starves also at less than the mean where what
//!   waits will take long;
//! - *making way*: accepted connections that moved more than the mean are held up for [`MADE_WAY_NS`], so that the
//!   queue runs empty and the others see the link as it is;
//! - *resting*: no connection is held up for at least as long. Where it was in vain the rest doubles, up to
//!   [`REST_NS_MAX`]: then it may be another link that they wait for.
//!
//! Connections that are paced for a line are left alone, as are those whose receiver takes nothing, those with long
//! round trips and those within the machine.

use super::lines::UNPACED;
use super::watched::Watched;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use vazao_meter::measures::Connection;

/// How many turns in a row a connection has starved when way is made for it.
const STARVED_TURNS: u32 = 2;

/// How many turns more what waits to be sent to another server may take: a program's write waits for it.
const LATE_TURNS: u64 = 3;

/// How long way is made: longer than a full queue of 50 ms takes to run empty, and what is sent meanwhile.
const MADE_WAY_NS: u64 = 250_000_000;

/// How long a rest is at most.
const REST_NS_MAX: u64 = 2_000_000_000;

/// The rate of connections that are held up: the kernel's largest burst takes longer at it than way is made. No line
/// has just this one.
const HELD_UP: u64 = 200_003;

/// What a connection with longer round trips has sent in a turn or two says little.
const FAR_US: u32 = 150_000;

/// A queue is before a connection whose round trips are so much longer than its shortest one.
const QUEUE_US: u32 = 5_000;

/// A connection: whether it was accepted (else this machine has made it), and its number among those.
type Id = (bool, u64);

/// What is known of a connection since the last turn.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    sent_bytes: u64,
    /// For how long its receiver's window was closed, in all.
    window_us: u64,
    has_unsent: bool,
    starved_turns: u32,
}

/// One that starves.
#[derive(Clone, Copy, Debug)]
struct Starved {
    sent_bytes: u64,
    /// What it has to move in a turn for the way not to be made in vain: twice what it did, and an eighth of the mean.
    hoped_bytes: u64,
}

#[derive(Debug)]
enum State {
    Looking,
    MakingWay { since_ns: u64, turn_ns: u64, starved: BTreeMap<Id, Starved>, held_up: Vec<Id> },
    Resting { until_ns: u64 },
}

/// What is to be done after a turn.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Nothing,
    HoldUp(Vec<Id>),
    LetGo(Vec<Id>),
}

/// Who makes way for whom, by what the kernel counts.
#[derive(Debug)]
struct Sharing {
    seen: BTreeMap<Id, Seen>,
    seen_ns: u64,
    state: State,
    /// How long the next rest is.
    rest_ns: u64,
}

/// Shares a server's link among the connections that it has accepted and those that its transport has made.
#[derive(Debug)]
pub struct SharedLink {
    accepted: Arc<Watched>,
    made: Arc<Watched>,
    sharing: Sharing,
}

impl SharedLink {
    /// How often it is to have a turn.
    pub const TURN: Duration = Duration::from_millis(100);

    pub(super) fn new(accepted: Arc<Watched>, made: Arc<Watched>) -> SharedLink {
        SharedLink { accepted, made, sharing: Sharing::new() }
    }

    /// Looks at the connections, and has some make way where others starve. True: some do; the next turn is not to be
    /// late.
    pub fn turn(&mut self, now_ns: u64) -> bool {
        let of = |is_accepted: bool, watched: &Watched| {
            let counts = watched.counts();
            counts.into_iter().map(move |counts| ((is_accepted, counts.id), counts))
        };
        let counts: Vec<(Id, Connection)> = of(true, &self.accepted).chain(of(false, &self.made)).collect();
        let is_paced = |(is_accepted, id): Id| {
            let watched = if is_accepted { &self.accepted } else { &self.made };
            watched.pace_of(id).is_none_or(|pace| pace != UNPACED)
        };
        match self.sharing.turn(&counts, now_ns, is_paced) {
            Step::Nothing => {}
            Step::HoldUp(ids) => {
                tracing::debug!(connections = ids.len(), "connections make way for those that starve");
                self.pace(&ids, UNPACED, HELD_UP);
            }
            Step::LetGo(ids) => self.pace(&ids, HELD_UP, UNPACED),
        }
        matches!(self.sharing.state, State::MakingWay { .. })
    }

    /// Has those that have the one pace take the other; one that is paced for a line meanwhile keeps that.
    fn pace(&self, ids: &[Id], from: u64, to: u64) {
        for (is_accepted, id) in ids {
            let watched = if *is_accepted { &self.accepted } else { &self.made };
            watched.change_pace(*id, from, to);
        }
    }
}

impl Drop for SharedLink {
    fn drop(&mut self) {
        if let State::MakingWay { held_up, .. } = &self.sharing.state {
            self.pace(held_up, HELD_UP, UNPACED);
        }
    }
}

impl Sharing {
    fn new() -> Sharing {
        Sharing { seen: BTreeMap::new(), seen_ns: 0, state: State::Looking, rest_ns: MADE_WAY_NS }
    }

    fn turn(&mut self, counts: &[(Id, Connection)], now_ns: u64, is_paced: impl Fn(Id) -> bool) -> Step {
        let turn_ns = now_ns.saturating_sub(self.seen_ns);
        let (starved, most) = self.look(counts, turn_ns, is_paced);
        self.seen_ns = now_ns;
        match &mut self.state {
            State::MakingWay { since_ns, .. } if now_ns < *since_ns + MADE_WAY_NS => Step::Nothing,
            State::MakingWay { since_ns, turn_ns, starved, held_up } => {
                let lasted = (now_ns - *since_ns) as f64 / (*turn_ns).max(1) as f64;
                self.rest_ns = match was_in_vain(starved, counts, lasted) {
                    true => (self.rest_ns * 2).min(REST_NS_MAX),
                    false => MADE_WAY_NS,
                };
                let held_up = std::mem::take(held_up);
                self.state = State::Resting { until_ns: now_ns + self.rest_ns };
                // What was seen meanwhile says nothing.
                self.seen.clear();
                Step::LetGo(held_up)
            }
            State::Resting { until_ns } if now_ns < *until_ns => Step::Nothing,
            State::Resting { .. } | State::Looking if starved.is_empty() || most.is_empty() => {
                self.state = State::Looking;
                Step::Nothing
            }
            State::Resting { .. } | State::Looking => {
                self.state = State::MakingWay { since_ns: now_ns, turn_ns, starved, held_up: most.clone() };
                Step::HoldUp(most)
            }
        }
    }

    /// Those that starve, and those that are to make way for them.
    fn look(
        &mut self,
        counts: &[(Id, Connection)],
        turn_ns: u64,
        is_paced: impl Fn(Id) -> bool,
    ) -> (BTreeMap<Id, Starved>, Vec<Id>) {
        let before = std::mem::take(&mut self.seen);
        let mut active = Vec::new();
        for (id, now) in counts {
            let seen = before.get(id).copied();
            let next = Seen {
                sent_bytes: now.sent_bytes,
                window_us: now.window_us,
                has_unsent: now.unsent_bytes > 0,
                starved_turns: 0,
            };
            self.seen.insert(*id, next);
            let Some(seen) = seen.filter(|seen| seen.has_unsent && next.has_unsent) else { continue };
            // Its receiver takes nothing: no link is to blame.
            let is_refused = now.window_us.saturating_sub(seen.window_us) * 2_000 > turn_ns;
            if !is_refused && now.rtt_us < FAR_US {
                active.push((*id, now, now.sent_bytes.saturating_sub(seen.sent_bytes), seen.starved_turns));
            }
        }
        let all: u64 = active.iter().map(|(_, _, moved, _)| *moved).sum();
        let mean = all / active.len().max(1) as u64;
        let mut starved = BTreeMap::new();
        for (id, now, moved_bytes, turns) in &active {
            let is_late = !id.0 && now.unsent_bytes > LATE_TURNS * moved_bytes && *moved_bytes < mean;
            if is_late || moved_bytes * 4 < mean {
                let seen = self.seen.entry(*id).or_default();
                seen.starved_turns = turns + 1;
                if seen.starved_turns >= STARVED_TURNS && !is_paced(*id) {
                    let hoped_bytes = (moved_bytes * 2).max(mean / 8);
                    starved.insert(*id, Starved { sent_bytes: now.sent_bytes, hoped_bytes });
                }
            }
        }
        if starved.is_empty() {
            return (starved, Vec::new());
        }
        // Answers make way; what other servers wait for does not.
        let most = active.iter().filter(|(id, _, moved, _)| id.0 && *moved > mean && !is_paced(*id));
        let (mut ids, mut has_queue) = (Vec::new(), false);
        for (id, now, ..) in most {
            ids.push(*id);
            has_queue |= now.rtt_us >= now.rtt_min_us.saturating_add(QUEUE_US);
        }
        if !has_queue {
            ids.clear();
        }
        (starved, ids)
    }
}

/// Whether most of those that starved still do, after so many turns.
fn was_in_vain(starved: &BTreeMap<Id, Starved>, counts: &[(Id, Connection)], turns: f64) -> bool {
    let still = counts.iter().filter(|(id, now)| {
        starved.get(id).is_some_and(|before| {
            let moved = now.sent_bytes.saturating_sub(before.sent_bytes) as f64;
            now.unsent_bytes > 0 && moved < turns * before.hoped_bytes as f64
        })
    });
    still.count() * 2 > starved.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN_NS: u64 = 100_000_000;
    const SLOW: Id = (false, 7);

    /// A link that gives some connections this many bytes a turn, and one of ours as much as `slow` says.
    struct Link {
        sharing: Sharing,
        now_ns: u64,
        counts: Vec<(Id, Connection)>,
        slow_bytes: u64,
        held_up: Vec<Id>,
        turns_held_up: u32,
        turns: u32,
    }

    impl Link {
        fn new(fast: u64, slow_bytes: u64) -> Link {
            let counts = |id: Id| {
                let (rtt_us, rtt_min_us) = (50_000, if id == SLOW { 48_000 } else { 3 });
                (
                    id,
                    Connection {
                        id: id.1,
                        unsent_bytes: 100_000,
                        rtt_us,
                        rtt_min_us,
                        ..Connection::default()
                    },
                )
            };
            Link {
                sharing: Sharing::new(),
                now_ns: 1,
                counts: (1..=fast).map(|id| counts((true, id))).chain([counts(SLOW)]).collect(),
                slow_bytes,
                held_up: Vec::new(),
                turns_held_up: 0,
                turns: 0,
            }
        }

        /// One turn, in which the slow one gets so much more where others make way.
        fn turn(&mut self, gain: u64) {
            self.now_ns += TURN_NS;
            self.turns += 1;
            self.turns_held_up += u32::from(!self.held_up.is_empty());
            for (id, counts) in &mut self.counts {
                counts.sent_bytes += match (*id == SLOW, self.held_up.is_empty()) {
                    (true, true) => self.slow_bytes,
                    (true, false) => self.slow_bytes * gain,
                    (false, true) => 300_000,
                    (false, false) => 20_000,
                };
            }
            match self.sharing.turn(&self.counts, self.now_ns, |_| false) {
                Step::Nothing => {}
                Step::HoldUp(ids) => self.held_up = ids,
                Step::LetGo(ids) => assert_eq!(ids, std::mem::take(&mut self.held_up)),
            }
        }

        fn slow(&mut self) -> &mut Connection {
            &mut self.counts.last_mut().expect("it is the last one").1
        }
    }

    #[test]
    fn those_that_move_most_make_way_for_one_that_starves_half_of_the_time_at_most() {
        let mut link = Link::new(8, 10_000);
        for _ in 0..3 {
            link.turn(20);
        }
        assert_eq!(link.held_up, (1..=8).map(|id| (true, id)).collect::<Vec<_>>());
        for _ in 0..200 {
            link.turn(20);
        }
        assert!(link.turns_held_up > 50 && link.turns_held_up * 2 <= link.turns, "{}", link.turns_held_up);
    }

    /// It waits for something else: a thin line further on, or a peer that is slow itself.
    #[test]
    fn where_it_is_in_vain_it_is_tried_more_and_more_rarely() {
        let mut link = Link::new(8, 10_000);
        for _ in 0..2_000 {
            link.turn(1);
        }
        assert!(link.turns_held_up > 50 && link.turns_held_up * 7 <= link.turns, "{}", link.turns_held_up);
    }

    /// Its acknowledgements come in bunches, with and without way made.
    #[test]
    fn what_comes_in_bunches_anyway_is_taken_for_no_success() {
        let mut link = Link::new(8, 0);
        for turn in 0..2_000 {
            link.slow().sent_bytes += if turn % 3 == 0 { 30_000 } else { 0 };
            link.turn(1);
        }
        assert!(link.turns_held_up * 7 <= link.turns, "{}", link.turns_held_up);
    }

    #[test]
    fn no_way_is_made_where_shares_are_even_or_no_queue_is_or_the_receiver_takes_nothing() {
        for what in 0..4 {
            let mut link = Link::new(8, if what == 0 { 100_000 } else { 10_000 });
            if what == 1 {
                link.counts.iter_mut().for_each(|(_, counts)| counts.rtt_us = counts.rtt_min_us + 900);
            }
            for _ in 0..50 {
                if what == 2 {
                    link.slow().window_us += TURN_NS / 1_000;
                }
                if what == 3 {
                    link.slow().unsent_bytes = 0;
                }
                link.turn(20);
            }
            assert_eq!(link.turns_held_up, 0, "{what}");
        }
    }

    /// Changes of three copies fill the links between servers: to hold some of them up cost 4 to 5% of their rate
    /// (docs/performance.md).
    #[test]
    fn connections_to_other_servers_make_no_way() {
        let mut link = Link::new(8, 10_000);
        link.counts.iter_mut().for_each(|(id, _)| *id = (false, id.1 + u64::from(*id != SLOW) * 10));
        for _ in 0..50 {
            link.turn(20);
        }
        assert_eq!(link.turns_held_up, 0);
    }

    /// A program's write waits for it.
    #[test]
    fn what_takes_long_to_get_to_another_server_has_way_made_already_below_the_mean() {
        for (waiting_bytes, has_way) in [(250_000, false), (800_000, true)] {
            let mut link = Link::new(8, 200_000);
            link.slow().unsent_bytes = waiting_bytes;
            for _ in 0..5 {
                link.turn(2);
            }
            assert_eq!(!link.held_up.is_empty(), has_way, "{waiting_bytes}");
        }
    }

    #[test]
    fn connections_that_are_paced_for_a_line_neither_make_way_nor_have_it_made() {
        for paced in [SLOW, (true, 3)] {
            let mut link = Link::new(8, 10_000);
            let mut held_up = Vec::new();
            for turn in 1..40 {
                link.counts.iter_mut().for_each(|(id, counts)| {
                    counts.sent_bytes += if *id == SLOW { 10_000 } else { 300_000 };
                });
                let step = link.sharing.turn(&link.counts, turn * TURN_NS, |id| id == paced);
                if let Step::HoldUp(ids) = step {
                    held_up.extend(ids);
                }
            }
            assert!(!held_up.contains(&paced));
            assert_eq!(held_up.is_empty(), paced == SLOW);
        }
    }
}
