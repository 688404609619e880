//! The memory against a server that carries changes out in an order of its own: whatever is remembered once everything
//! has been answered must be what the server has.

use super::*;
use std::collections::BTreeMap;

const DIRECTORY: InodeId = InodeId(7);
const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 0 }
}

fn attributes(inode: InodeId, time: i64) -> Attributes {
    Attributes { inode, modified: at(time), changed: at(time), ..Attributes::default() }
}

/// As of now.
fn asked(memory: &MetadataCache, at_ns: u64) -> Asked {
    Asked { at_ns, ..Asked::default().after(memory.changes()) }
}

#[test]
fn an_answer_from_before_a_change_of_this_client_is_not_taken_over() {
    let memory = Arc::new(MetadataCache::default());
    let early = asked(&memory, 1);
    let change = memory.begin(vec![Thing::Name(DIRECTORY, b"a".to_vec()), Thing::Inode(InodeId(9))]);
    memory.cache_name(asked(&memory, 2), DIRECTORY, b"a", None);
    assert!(memory.cached_name(DIRECTORY, b"a").is_none(), "it is just being changed");
    let settled = change.done(early, None).expect("nothing else changed it");
    memory.cache_name(early, DIRECTORY, b"a", None);
    memory.cache_attributes(early, &attributes(InodeId(9), 1));
    assert!(memory.cached_name(DIRECTORY, b"a").is_none());
    assert!(memory.cached_attributes(InodeId(9)).is_none());
    memory.cache_name(settled, DIRECTORY, b"a", Some(InodeId(9)));
    assert_eq!(memory.cached_name(DIRECTORY, b"a").map(|(leads, _)| leads), Some(Some(InodeId(9))));
}

#[test]
fn of_changes_that_overlap_nobody_knows_the_last_and_a_refused_one_changes_nothing() {
    let memory = Arc::new(MetadataCache::default());
    let things = || vec![Thing::Name(DIRECTORY, b"a".to_vec())];
    let start = asked(&memory, 1);
    let (first, second) = (memory.begin(things()), memory.begin(things()));
    assert!(first.done(start, None).is_none() && second.done(start, None).is_none());
    let refused = memory.begin(things());
    let third = memory.begin(things());
    refused.refused();
    assert!(third.done(start, None).is_some());
    memory.cache_name(asked(&memory, 2), DIRECTORY, b"a", None);
    memory.begin(things()).refused();
    assert!(memory.cached_name(DIRECTORY, b"a").is_some());
    memory.begin(things()).lost(10);
    assert!(memory.cached_name(DIRECTORY, b"a").is_none(), "it may have been carried out");
    memory.cache_name(asked(&memory, 11), DIRECTORY, b"a", None);
    assert!(memory.cached_name(DIRECTORY, b"a").is_none(), "and may still be");
    memory.cache_name(asked(&memory, 10 + DOUBT_NS), DIRECTORY, b"a", None);
    assert!(memory.cached_name(DIRECTORY, b"a").is_some());
}

#[test]
fn a_directory_shows_the_later_time_of_its_names_whichever_answer_comes_last() {
    let memory = Arc::new(MetadataCache::default());
    let modified =
        |memory: &MetadataCache| memory.cached_attributes(DIRECTORY).map(|(known, _)| known.modified);
    let early = asked(&memory, 1);
    memory.cache_attributes(early, &attributes(DIRECTORY, 10));
    let (one, two) =
        (memory.begin(vec![Thing::Times(DIRECTORY)]), memory.begin(vec![Thing::Times(DIRECTORY)]));
    two.done(early, Some(at(12)));
    one.done(early, Some(at(11)));
    assert_eq!(modified(&memory), Some(at(12)));
    // Asked before those, answered only now: it may not have seen them.
    memory.cache_attributes(Asked { at_ns: 5, ..early }, &attributes(DIRECTORY, 10));
    assert_eq!(modified(&memory), Some(at(12)));
    // Somebody else has set it back since.
    memory.cache_attributes(asked(&memory, 9), &attributes(DIRECTORY, 3));
    assert_eq!(modified(&memory), Some(at(3)));
    let set = memory.begin(vec![Thing::Inode(DIRECTORY)]);
    let created = memory.begin(vec![Thing::Times(DIRECTORY)]);
    set.done(early, None);
    created.done(early, Some(at(20)));
    assert_eq!(modified(&memory), None, "the time was set before or after the name came");
}

#[test]
fn a_new_directory_is_known_whole_until_something_does_not_fit() {
    let memory = Arc::new(MetadataCache::default());
    let start = asked(&memory, 1);
    assert!(memory.cached_absence(DIRECTORY, b"a").is_none());
    memory.cache_empty(start, &attributes(DIRECTORY, 1));
    assert!(memory.cached_absence(DIRECTORY, b"a").is_some());
    memory.change_whole(DIRECTORY, b"a", true, None);
    assert!(
        memory.cached_absence(DIRECTORY, b"a").is_none() && memory.cached_absence(DIRECTORY, b"b").is_some()
    );
    memory.change_whole(DIRECTORY, b"a", false, None);
    assert!(memory.cached_absence(DIRECTORY, b"a").is_some());
    memory.change_whole(DIRECTORY, b"b", false, None);
    assert!(memory.cached_absence(DIRECTORY, b"a").is_none(), "a name was removed that was not known");
    memory.cache_empty(start, &attributes(DIRECTORY, 1));
    drop(memory.begin(vec![Thing::Name(DIRECTORY, b"a".to_vec())]));
    assert!(memory.cached_absence(DIRECTORY, b"b").is_none(), "nobody knows whether a came");
    assert_eq!(memory.whole_names.load(Ordering::SeqCst), 0);
}

#[test]
fn attributes_prove_a_directory_whole_that_show_a_time_of_this_clients_own_and_nothing_later() {
    let memory = Arc::new(MetadataCache::default());
    memory.cache_empty(asked(&memory, 1), &attributes(DIRECTORY, 4));
    memory.change_whole(DIRECTORY, b"a", true, Some(at(5)));
    let since = |shown: &Attributes| memory.whole_if_own(shown).map(|asked| asked.at_ns);
    assert_eq!(since(&attributes(DIRECTORY, 6)), None, "somebody else has changed it");
    assert_eq!(since(&attributes(DIRECTORY, 4)), Some(1), "as it was before the last change");
    assert_eq!(since(&attributes(DIRECTORY, 5)), Some(1));
    let set_back = Attributes { changed: at(7), ..attributes(DIRECTORY, 5) };
    assert_eq!(since(&set_back), None, "somebody else has changed it and set its time back");
    memory.renew_whole(asked(&memory, 9), DIRECTORY);
    memory.renew_whole(asked(&memory, 8), DIRECTORY);
    assert_eq!(memory.whole_since(DIRECTORY).map(|asked| asked.at_ns), Some(9));
}

#[test]
fn memory_is_bounded() {
    let memory = Arc::new(MetadataCache::default());
    let start = asked(&memory, 1);
    for number in 0..(2 * SHARDS * SHARD_THINGS_MAX) as u64 {
        memory.cache_attributes(start, &attributes(InodeId(number), 1));
        memory.cache_name(start, DIRECTORY, &number.to_le_bytes(), None);
    }
    for shard in &memory.shards {
        let shard = shard.lock();
        assert!(shard.inodes.len() <= SHARD_THINGS_MAX && shard.names.len() <= SHARD_THINGS_MAX);
    }
}

/// What the server has: one directory.
#[derive(Default)]
struct Server {
    names: BTreeMap<Vec<u8>, InodeId>,
    time: i64,
    next: u64,
}

/// A request on its way: sent, carried out by the server at some moment, answered later.
enum InFlightCall {
    Lookup { name: Vec<u8>, asked: Asked, found: Option<Option<InodeId>> },
    Stat { asked: Asked, time: Option<i64> },
    Change { name: Vec<u8>, creates: bool, asked: Asked, change: Change, outcome: Option<Outcome> },
}

/// Time and inode, when it was not refused.
type Outcome = Option<(i64, InodeId)>;

impl InFlightCall {
    fn carry_out(&mut self, server: &mut Server) {
        match self {
            InFlightCall::Lookup { name, found, .. } => {
                found.get_or_insert_with(|| server.names.get(name).copied());
            }
            InFlightCall::Stat { time, .. } => {
                time.get_or_insert(server.time);
            }
            InFlightCall::Change { name, creates, outcome, .. } if outcome.is_none() => {
                let is_there = server.names.contains_key(name);
                *outcome = Some((is_there != *creates).then(|| {
                    server.next += 1;
                    server.time += 1;
                    let inode = match creates {
                        true => InodeId(100 + server.next),
                        false => server.names[name],
                    };
                    if *creates {
                        server.names.insert(name.clone(), inode)
                    } else {
                        server.names.remove(name)
                    };
                    (server.time, inode)
                }));
            }
            InFlightCall::Change { .. } => {}
        }
    }

    /// The answer arrives: what `cached` does with it.
    fn arrive(self, memory: &MetadataCache) {
        match self {
            InFlightCall::Lookup { name, asked, found } => {
                memory.cache_name(asked, DIRECTORY, &name, found.expect("carried out"));
            }
            InFlightCall::Stat { asked, time } => {
                memory.cache_attributes(asked, &attributes(DIRECTORY, time.expect("carried out")));
            }
            InFlightCall::Change { change, outcome: Some(None) | None, .. } => change.refused(),
            InFlightCall::Change { name, creates, asked, change, outcome: Some(Some((time, inode))) } => {
                let settled = change.done(asked, Some(at(time)));
                memory.change_whole(DIRECTORY, &name, creates, None);
                if let Some(asked) = settled {
                    memory.cache_name(asked, DIRECTORY, &name, creates.then_some(inode));
                }
            }
        }
    }
}

/// A small generator, so that a failure can be repeated by its seed (xorshift64, Marsaglia 2003).
fn random(state: &mut u64, below: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % below as u64) as usize
}

#[test]
fn whatever_order_answers_come_in_nothing_wrong_is_remembered() {
    for seed in 1..=3000u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (memory, mut server) = (Arc::new(MetadataCache::default()), Server::default());
        memory.cache_empty(asked(&memory, 0), &attributes(DIRECTORY, 0));
        let mut in_flight: Vec<InFlightCall> = Vec::new();
        for step in 1..60u64 {
            let name = NAMES[random(&mut state, NAMES.len())].to_vec();
            let now = asked(&memory, step);
            match random(&mut state, 8) {
                0 => in_flight.push(InFlightCall::Lookup { name, asked: now, found: None }),
                1 => in_flight.push(InFlightCall::Stat { asked: now, time: None }),
                2 | 3 => {
                    let things = vec![Thing::Name(DIRECTORY, name.clone()), Thing::Times(DIRECTORY)];
                    let (creates, change) = (random(&mut state, 2) == 0, memory.begin(things));
                    in_flight.push(InFlightCall::Change { name, creates, asked: now, change, outcome: None });
                }
                _ if in_flight.is_empty() => {}
                4 | 5 => {
                    let index = random(&mut state, in_flight.len());
                    in_flight[index].carry_out(&mut server);
                }
                _ => {
                    let mut flight = in_flight.swap_remove(random(&mut state, in_flight.len()));
                    flight.carry_out(&mut server);
                    flight.arrive(&memory);
                }
            }
        }
        for mut flight in in_flight {
            flight.carry_out(&mut server);
            flight.arrive(&memory);
        }
        check(seed, &memory, &server);
    }
}

fn check(seed: u64, memory: &MetadataCache, server: &Server) {
    for name in NAMES {
        let there = server.names.get(name).copied();
        if let Some((leads, _)) = memory.cached_name(DIRECTORY, name) {
            assert_eq!(leads, there, "seed {seed}, {name:?}");
        }
        if memory.cached_absence(DIRECTORY, name).is_some() {
            assert_eq!(there, None, "seed {seed}, {name:?} is there");
        }
    }
    if let Some((known, _)) = memory.cached_attributes(DIRECTORY) {
        assert_eq!(known.modified, at(server.time), "seed {seed}");
    }
}
