//! What links allow a write with copies: each byte loads some ends of links more than once, and the most loaded one is
//! the narrowest resource. Pure sums over where the file lies; nothing is measured here.

use crate::hosts::{BitsPerSecond, TCP_PAYLOAD_SHARE};
use std::collections::BTreeMap;

/// How a change gets from the primary of a placement group to its other members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Forwarding {
    /// The primary sends to each of them. What is built.
    Star,
    /// Each sends to the next one. Computed only.
    Chain,
}

/// The rates of the links, each way; `None`: not bounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Links {
    pub(super) client: Option<BitsPerSecond>,
    pub(super) server: Option<BitsPerSecond>,
}

/// The most loaded end of a link.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Narrowest {
    /// Bytes of the file a second that it allows.
    pub(super) bytes_per_s: f64,
    /// Which it is, and how often it carries each byte of the file.
    pub(super) link: String,
}

const OUT: &str = "outgoing";
const IN: &str = "incoming";
const CLIENT: &str = "client";

/// The narrowest link for writing a file whose slots lie on `groups`: the names of the members of each, the primary
/// first. `None`: no link that is loaded is bounded.
pub(super) fn of_write(groups: &[Vec<String>], links: Links, forwarding: Forwarding) -> Option<Narrowest> {
    let loads = loads(groups, forwarding);
    let allowed = loads.into_iter().filter_map(|((host, way), load)| {
        let rate = if host == CLIENT { links.client } else { links.server }?;
        let bytes_per_s = rate.0 as f64 / 8.0 * TCP_PAYLOAD_SHARE / load;
        Some(Narrowest { bytes_per_s, link: format!("the {way} link of {host}, {load:.2} times each byte") })
    });
    allowed.min_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s))
}

/// The groups of a file of `width` slots and `copies` copies on `servers` servers that each lead and follow as often as
/// the others: what placement can do at best for a single file.
pub(super) fn even(copies: usize, width: usize, servers: usize) -> Vec<Vec<String>> {
    let member = |at: usize| format!("data{}", at % servers.max(1) + 1);
    (0..width).map(|slot| (slot..slot + copies).map(member).collect()).collect()
}

/// How often each end of a link carries each byte of the file, on average.
fn loads(groups: &[Vec<String>], forwarding: Forwarding) -> BTreeMap<(&str, &'static str), f64> {
    let mut loads = BTreeMap::new();
    let share = 1.0 / groups.len().max(1) as f64;
    for group in groups {
        let mut from = CLIENT;
        for member in group {
            *loads.entry((from, OUT)).or_default() += share;
            *loads.entry((member.as_str(), IN)).or_default() += share;
            if from == CLIENT || forwarding == Forwarding::Chain {
                from = member;
            }
        }
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups as numbers of servers.
    fn groups(numbers: &[&[u32]]) -> Vec<Vec<String>> {
        numbers.iter().map(|group| group.iter().map(|number| format!("data{number}")).collect()).collect()
    }

    const NARROW: Option<BitsPerSecond> = Some(BitsPerSecond(100_000_000));
    const AT_CLIENT: Links = Links { client: NARROW, server: None };
    const AT_SERVERS: Links = Links { client: None, server: NARROW };

    /// In links of 100 Mb/s.
    fn allowed(groups: &[Vec<String>], links: Links, forwarding: Forwarding) -> f64 {
        let narrowest = of_write(groups, links, forwarding).expect("a link is bounded");
        narrowest.bytes_per_s * 8.0 / 100e6 / TCP_PAYLOAD_SHARE
    }

    #[test]
    fn the_clients_link_carries_each_byte_once_whatever_the_copies() {
        for members in [&[1][..], &[1, 2], &[1, 2, 3]] {
            let one = groups(&[members]);
            assert_eq!(allowed(&one, AT_CLIENT, Forwarding::Star), 1.0);
            assert_eq!(allowed(&one, Links { server: NARROW, ..AT_CLIENT }, Forwarding::Chain), 1.0);
        }
    }

    #[test]
    fn in_a_star_the_primary_of_one_group_sends_to_each_other_member_and_in_a_chain_to_one() {
        let [one, two, three] = [&[1][..], &[1, 2], &[1, 2, 3]].map(|members| groups(&[members]));
        let star = [&one, &two, &three].map(|groups| allowed(groups, AT_SERVERS, Forwarding::Star));
        let chain = [&one, &two, &three].map(|groups| allowed(groups, AT_SERVERS, Forwarding::Chain));
        assert_eq!((star, chain), ([1.0, 1.0, 0.5], [1.0, 1.0, 1.0]));
        let narrowest = of_write(&three, AT_SERVERS, Forwarding::Star).expect("bounded");
        assert_eq!(narrowest.link, "the outgoing link of data1, 2.00 times each byte");
    }

    #[test]
    fn where_all_servers_lead_alike_what_they_receive_is_the_limit_and_a_chain_gains_nothing() {
        let even = even(3, 4, 4);
        assert_eq!(even, groups(&[&[1, 2, 3], &[2, 3, 4], &[3, 4, 1], &[4, 1, 2]]));
        for forwarding in [Forwarding::Star, Forwarding::Chain] {
            assert!((allowed(&even, AT_SERVERS, forwarding) - 4.0 / 3.0).abs() < 1e-9);
        }
        assert!(of_write(&even, AT_SERVERS, Forwarding::Star).is_some_and(|it| it.link.contains("incoming")));
    }

    #[test]
    fn uneven_followers_are_found_and_links_without_a_bound_are_none() {
        let uneven = groups(&[&[1, 2], &[2, 3], &[3, 2], &[4, 2]]);
        let narrowest = of_write(&uneven, AT_SERVERS, Forwarding::Star).expect("bounded");
        assert_eq!(narrowest.link, "the incoming link of data2, 1.00 times each byte");
        assert_eq!(of_write(&uneven, Links::default(), Forwarding::Star), None);
    }
}
