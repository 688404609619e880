//! One server for each slot of a file, of those that have its bytes, so that none has more slots than needed: a
//! bipartite assignment by augmenting paths (Kuhn 1955, with more than one place at a server).
//!
//! The bound on a server's slots grows from one on, and a path that places one more slot only exchanges those of the
//! servers on it: so what is below the bound is spread evenly, too. Then the bound on the slots of a host, whose link
//! several servers share, is found in the same way, and the slots are placed within both.
//!
//! Each slot is placed by a search that comes to each server once. A bound is raised once for each slot at most, and
//! before it is, searches in vain come to each server once, all together. So for 64 slots of three copies, the most
//! that a file has, that is some 40,000 steps at worst, and three times as many where several servers are on one host.

/// What there is to choose from.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    /// The servers of each slot, the one that is liked best first.
    pub(super) slots: &'a [Vec<usize>],
    /// Of each server; hosts are numbered without gaps.
    pub(super) host_of: &'a [usize],
    /// What each server has anyway: where one has to get more slots than others, it is one with little.
    pub(super) had: &'a [usize],
}

/// The most slots that a server and a host may have.
#[derive(Clone, Copy)]
struct Bounds {
    server: usize,
    host: usize,
}

/// What is placed so far.
struct Places<'a> {
    choice: Choice<'a>,
    servers_of: Vec<Vec<usize>>,
    placed: Vec<Option<usize>>,
    /// The slots of each server, and how many each host has.
    slots_at: Vec<Vec<usize>>,
    host_load: Vec<usize>,
}

/// How a search has come to a server.
#[derive(Clone, Copy)]
enum Way {
    /// This slot moves to it.
    Slot(usize),
    /// This server gets a slot, and as their host has all that it may have, the one that was come to loses one.
    Host(usize),
}

/// The servers that a search has come to.
struct Reached<'a> {
    ways: Vec<Option<Way>>,
    order: Vec<usize>,
    /// No way leads on from these to one with room.
    full: &'a [bool],
}

impl Reached<'_> {
    fn come_to(&mut self, server: usize, way: Way) {
        if self.ways[server].is_none() && !self.full[server] {
            self.ways[server] = Some(way);
            self.order.push(server);
        }
    }
}

/// A server for each slot. The largest number of slots of a server is the smallest possible, and with that the largest
/// one of a host. `None`: no server has the slot.
pub(super) fn assign(choice: Choice<'_>) -> Vec<Option<usize>> {
    let (servers, most) = (choice.host_of.len(), choice.slots.len());
    let hosts = choice.host_of.iter().max().map_or(0, |host| host + 1);
    let (by_servers, server) = raised(choice, hosts, |server| Bounds { server, host: most });
    if hosts <= 1 || hosts == servers {
        return by_servers;
    }
    let (_, host) = raised(choice, hosts, |host| Bounds { server, host });
    raised(choice, hosts, |level| Bounds { server: level.min(server), host }).0
}

/// Places all slots within bounds that are raised step by step; where, and the step that was enough.
fn raised(choice: Choice<'_>, hosts: usize, bounds: impl Fn(usize) -> Bounds) -> (Vec<Option<usize>>, usize) {
    let mut servers_of = vec![Vec::new(); hosts];
    choice.host_of.iter().enumerate().for_each(|(server, host)| servers_of[*host].push(server));
    let mut places = Places {
        choice,
        servers_of,
        placed: vec![None; choice.slots.len()],
        slots_at: vec![Vec::new(); choice.host_of.len()],
        host_load: vec![0; hosts],
    };
    let mut left: Vec<usize> =
        (0..choice.slots.len()).filter(|slot| !choice.slots[*slot].is_empty()).collect();
    let mut level = 0;
    while !left.is_empty() && level < choice.slots.len() {
        level += 1;
        let mut full = vec![false; choice.host_of.len()];
        left.retain(|slot| !places.place(*slot, bounds(level), &mut full));
    }
    (places.placed, level)
}

impl Places<'_> {
    /// Places one slot more, where that is possible within the bounds. Others may move. Else what the search has come
    /// to is full, and stays so within these bounds: no slot that is placed later moves there.
    fn place(&mut self, slot: usize, bounds: Bounds, full: &mut [bool]) -> bool {
        let Choice { slots, host_of, had } = self.choice;
        let mut reached = Reached { ways: vec![None; host_of.len()], order: Vec::new(), full };
        slots[slot].iter().for_each(|server| reached.come_to(*server, Way::Slot(slot)));
        let mut end: Option<usize> = None;
        let mut next = 0;
        while let Some(&server) = reached.order.get(next) {
            next += 1;
            let host = host_of[server];
            let has_room = self.slots_at[server].len() < bounds.server;
            if has_room && self.host_load[host] < bounds.host {
                end = end.filter(|end| had[*end] <= had[server]).or(Some(server));
            } else if has_room {
                let losing = self.servers_of[host].iter().filter(|other| !self.slots_at[**other].is_empty());
                losing.for_each(|other| reached.come_to(*other, Way::Host(server)));
            }
            for moved in &self.slots_at[server] {
                slots[*moved].iter().for_each(|to| reached.come_to(*to, Way::Slot(*moved)));
            }
        }
        let Reached { ways, order, .. } = reached;
        let Some(end) = end else {
            order.iter().for_each(|server| full[*server] = true);
            return false;
        };
        self.host_load[host_of[end]] += 1;
        self.follow(end, &ways);
        true
    }

    /// Moves slots along the ways that lead to `end`, which has one more.
    fn follow(&mut self, end: usize, ways: &[Option<Way>]) {
        let mut at = end;
        while let Some(way) = ways[at] {
            let slot = match way {
                Way::Slot(slot) => slot,
                Way::Host(server) => {
                    at = server;
                    continue;
                }
            };
            self.slots_at[at].push(slot);
            let Some(before) = self.placed[slot].replace(at) else { return };
            self.slots_at[before].retain(|other| *other != slot);
            at = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The largest load of a server, and of a host.
    fn largest(placed: &[usize], host_of: &[usize]) -> (usize, usize) {
        let count = |of: &dyn Fn(usize) -> usize, which: usize| {
            placed.iter().filter(|server| of(**server) == which).count()
        };
        let servers = (0..host_of.len()).map(|server| count(&|server| server, server)).max();
        let hosts = host_of.iter().map(|host| count(&|server| host_of[server], *host)).max();
        (servers.unwrap_or(0), hosts.unwrap_or(0))
    }

    /// By trying all.
    fn best(slots: &[Vec<usize>], host_of: &[usize], placed: &mut Vec<usize>) -> (usize, usize) {
        let Some(servers) = slots.get(placed.len()) else { return largest(placed, host_of) };
        let mut best_of = (usize::MAX, usize::MAX);
        for server in servers {
            placed.push(*server);
            best_of = best_of.min(best(slots, host_of, placed));
            placed.pop();
        }
        best_of
    }

    fn sorted_loads(placed: &[usize], servers: usize) -> Vec<usize> {
        let mut loads = vec![0; servers];
        placed.iter().for_each(|server| loads[*server] += 1);
        loads.sort_unstable();
        loads
    }

    fn placed(slots: &[Vec<usize>], host_of: &[usize]) -> Vec<usize> {
        let choice = Choice { slots, host_of, had: &vec![0; host_of.len()] };
        let placed: Vec<usize> =
            assign(choice).into_iter().map(|server| server.expect("each has some")).collect();
        for (server, servers) in placed.iter().zip(slots) {
            assert!(servers.contains(server), "{servers:?}");
        }
        placed
    }

    fn any_slots() -> impl Strategy<Value = (Vec<Vec<usize>>, Vec<usize>)> {
        (1usize..=6).prop_flat_map(|servers| {
            let slot = proptest::collection::vec(0..servers, 1..=3);
            let host_of = proptest::collection::vec(0usize..4, servers).prop_map(without_gaps);
            (proptest::collection::vec(slot, 1..=7), host_of)
        })
    }

    fn without_gaps(host_of: Vec<usize>) -> Vec<usize> {
        let known: BTreeSet<usize> = host_of.iter().copied().collect();
        host_of.iter().map(|host| known.range(..host).count()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn the_largest_load_is_the_smallest_possible((slots, host_of) in any_slots()) {
            let own: Vec<usize> = (0..host_of.len()).collect();
            prop_assert_eq!(
                largest(&placed(&slots, &own), &own).0,
                best(&slots, &own, &mut Vec::new()).0
            );
            prop_assert_eq!(
                largest(&placed(&slots, &host_of), &host_of),
                best(&slots, &host_of, &mut Vec::new())
            );
        }
    }

    #[test]
    fn below_the_largest_load_slots_are_spread_evenly_too() {
        // Two slots have one server only: the others are not put together as well because of that.
        let slots = [vec![0], vec![0], vec![1, 2, 3], vec![1, 2, 3], vec![1, 2, 3]];
        assert_eq!(sorted_loads(&placed(&slots, &[0, 1, 2, 3]), 4), [1, 1, 1, 2]);
    }

    #[test]
    fn a_slot_has_the_server_that_it_names_first_where_that_costs_nothing() {
        let slots = [vec![2, 0, 1], vec![1, 2, 0], vec![0, 1, 2]];
        assert_eq!(placed(&slots, &[0, 1, 2]), [2, 1, 0]);
    }

    #[test]
    fn servers_of_one_host_share_what_is_left_to_choose() {
        // Four servers of three hosts; each slot could be on a server of its own in several ways.
        let slots = [vec![0, 2], vec![1, 3]];
        let host_of = [0, 0, 1, 2];
        assert_eq!(largest(&placed(&slots, &host_of), &host_of), (1, 1));
    }

    #[test]
    fn what_has_to_be_more_goes_to_a_server_that_had_less() {
        // The fourth slot can only be at the third server, or have another one move to the first or second.
        let slots = [vec![0], vec![1, 0], vec![2, 1], vec![2]];
        for (had, most) in [([0, 1, 1], 0), ([1, 0, 1], 1), ([1, 1, 0], 2)] {
            let choice = Choice { slots: &slots, host_of: &[0, 1, 2], had: &had };
            let placed = assign(choice);
            assert_eq!(placed.iter().filter(|server| **server == Some(most)).count(), 2, "{placed:?}");
        }
    }

    #[test]
    fn a_slot_that_no_server_is_known_of_has_none_and_the_others_are_placed() {
        let slots = [vec![], vec![0], vec![0]];
        assert_eq!(assign(Choice { slots: &slots, host_of: &[0], had: &[0] }), [None, Some(0), Some(0)]);
        assert_eq!(assign(Choice { slots: &[], host_of: &[], had: &[] }), []);
    }
}
