//! Placement groups that have fewer copies than they were made with, and how far the targets are that they lack.

use super::progress::{self, Lacking};
use super::troubles::Trouble;
use crate::format;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use vazao_model::{ClusterMap, GroupAway, Target, TargetId};

/// Lost targets that are named; of a large cluster there may be many.
const NAMED_MAX: usize = 4;

/// Groups that were made with several copies.
fn count(map: &ClusterMap) -> usize {
    map.groups.iter().filter(|group| map.copies(group.id) > 1).count()
}

/// Those of them that have fewer now.
fn short(map: &ClusterMap) -> Vec<&GroupAway> {
    map.away.iter().filter(|away| map.members(away.id).len() < away.copies as usize).collect()
}

/// The targets that those lack.
fn lacking<'a>(map: &'a ClusterMap, short: &[&GroupAway]) -> BTreeMap<TargetId, Lacking<'a>> {
    let mut lacking: BTreeMap<TargetId, Lacking<'_>> = BTreeMap::new();
    for member in short.iter().flat_map(|away| &away.members) {
        let it = lacking.entry(member.target).or_insert(Lacking { is_back: true, ..Lacking::default() });
        it.ago_ms = it.ago_ms.max(member.ago_ms);
        it.groups += 1;
        it.is_back &= map.is_back(member);
    }
    for known in &map.lagging {
        if let Some(it) = lacking.get_mut(&known.target) {
            it.known = Some(known);
        }
    }
    lacking
}

/// Targets that have the only whole copies of groups, and cannot be asked; and how many groups that are.
fn unreachable(map: &ClusterMap, short: &[&GroupAway]) -> (usize, BTreeSet<TargetId>) {
    let is_gone = |id: &TargetId| map.target(*id).is_some() && !map.can_be_asked(*id);
    let members = short.iter().map(|away| map.members(away.id));
    let gone: Vec<Vec<TargetId>> =
        members.filter(|members| !members.is_empty() && members.iter().all(is_gone)).collect();
    (gone.len(), gone.into_iter().flatten().collect())
}

/// Targets of which this is so, that have copies of groups from which others are made again.
fn sources(map: &ClusterMap, short: &[&GroupAway], is_so: impl Fn(&Target) -> bool) -> Vec<String> {
    let members: BTreeSet<TargetId> = short.iter().flat_map(|away| map.members(away.id)).collect();
    members.iter().filter(|id| map.target(**id).is_some_and(&is_so)).map(ToString::to_string).collect()
}

/// What is said of the targets that groups lack, each in a sentence.
pub(crate) fn sentences(map: &ClusterMap) -> Vec<String> {
    let lacking = lacking(map, &short(map));
    let named = lacking.iter().take(NAMED_MAX).map(|(target, it)| progress::words(map, *target, it));
    let more = match lacking.len().saturating_sub(NAMED_MAX) {
        0 => None,
        more => Some(format!("and {}", format::count(more as u64, "more target", "more targets"))),
    };
    named.chain(more).collect()
}

/// What is said of copies where all is well; `None`: there are none, or some lack.
pub(super) fn all_is_well(map: &ClusterMap) -> Option<String> {
    let groups = count(map) as u64;
    (groups > 0 && short(map).is_empty()).then(|| {
        let groups =
            format::count(groups, "placement group with copies has", "placement groups with copies have");
        format!("all copies are there: {groups} as many as made with")
    })
}

/// Groups that lack copies.
pub(super) fn trouble(map: &ClusterMap) -> Option<Trouble> {
    let short = short(map);
    if short.is_empty() {
        return None;
    }
    let alone = short.iter().filter(|away| map.members(away.id).len() == 1).count();
    let alone = match alone {
        0 => String::new(),
        1 => ", one of them a single one".to_owned(),
        _ => format!(", {alone} of them a single one"),
    };
    let what = format!(
        "{} of {} have fewer copies than they were made with{alone}. {}",
        short.len(),
        format::count(count(map) as u64, "placement group", "placement groups"),
        sentences(map).join(". "),
    );
    let meanwhile =
        "their files are read and written with the copies that are left, and new files go to other groups";
    let (groups, targets) = unreachable(map, &short);
    if groups > 0 {
        let names: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        let remedy = format!(
            "files in {groups} of them are neither read nor written until {names} is back: no other target has all \
             that was written; bring it back first; if it is lost, `vazao target files TARGET --lost` lists what has no copy without it"
        );
        return Some(Trouble { thing: "copies:".to_owned(), what, remedy });
    }
    let lacking = lacking(map, &short);
    let stands_still =
        |it: &Lacking<'_>| it.known.is_some_and(|it| it.left_bytes > 0 && it.left_ms.is_none());
    // Also one that has everything else.
    let waits = |it: &Lacking<'_>| it.known.is_some_and(|it| it.left_bytes == 0 || it.left_ms.is_none());
    let damaged = sources(map, &short, |target| target.corrupt_blocks > 0);
    let lost = sources(map, &short, |target| target.missing_objects > 0);
    let remedy = match lacking.values().all(|it| it.is_back) {
        true if !lost.is_empty() && lacking.values().any(waits) => format!(
            "{meanwhile}; if nothing is compared for long, objects that {} lacks, and of which an older copy may be \
             left elsewhere, keep it from going on: `vazao scrub --compare` names the files; restore or remove them",
            lost.join(", ")
        ),
        true if !damaged.is_empty() && lacking.values().any(stands_still) => format!(
            "{meanwhile}; if nothing is compared for long, a file that cannot be used on {} keeps it from going on: \
             `vazao scrub` names it; restore or remove it",
            damaged.join(", ")
        ),
        true => format!("{meanwhile}; nothing has to be done"),
        false => {
            format!("{meanwhile}; bring the lost targets back (see above): they catch up by themselves")
        }
    };
    Some(Trouble { thing: "copies:".to_owned(), what, remedy })
}

/// The same for programs.
pub(super) fn to_json(map: &ClusterMap) -> Value {
    let short = short(map);
    let lost = lagging_json(map);
    let groups: Vec<Value> = short
        .iter()
        .map(|away| {
            let current: Vec<String> = map.members(away.id).iter().map(ToString::to_string).collect();
            let away_now: Vec<String> = away.members.iter().map(|member| member.target.to_string()).collect();
            json!({"group": away.id.to_string(), "copies": away.copies, "current": current, "away": away_now})
        })
        .collect();
    json!({"groups": count(map), "short": short.len(), "lost": lost, "short_groups": groups})
}

/// The targets that groups lack, for programs.
pub(crate) fn lagging_json(map: &ClusterMap) -> Vec<Value> {
    lacking(map, &short(map)).iter().map(|(target, it)| progress::to_json(map, *target, it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::cluster::lagging::LaggingTarget;
    use vazao_model::{AwayMember, Group, GroupId, Node, NodeId, NodeState};

    /// A group: its number, current members, and the others with the milliseconds since they were current.
    type Case<'a> = (u32, &'a [u32], &'a [(u32, u64)]);

    fn map(groups: &[Case<'_>]) -> ClusterMap {
        let id = |at: u32| GroupId(GroupId::FIRST + at);
        let group = |&(at, current, _): &Case<'_>| Group {
            id: id(at),
            epoch: 1,
            members: current.iter().copied().map(TargetId).collect(),
            is_agreed: true,
        };
        let away = |&(at, current, lost): &Case<'_>| {
            let member = |&(target, ago_ms): &(u32, u64)| AwayMember {
                target: TargetId(target),
                is_leaving: false,
                ago_ms,
            };
            let members: Vec<AwayMember> = lost.iter().map(member).collect();
            let copies = (current.len() + members.len()) as u32;
            (!members.is_empty()).then_some(GroupAway { id: id(at), copies, members })
        };
        ClusterMap {
            groups: groups.iter().map(group).collect(),
            away: groups.iter().filter_map(away).collect(),
            ..ClusterMap::default()
        }
    }

    #[test]
    fn groups_that_lack_copies_are_counted_with_the_targets_that_they_lost() {
        let map = map(&[
            (0, &[1], &[]),
            (1, &[1, 2], &[]),
            (2, &[1], &[(3, 72_000)]),
            (3, &[2], &[(3, 71_000)]),
            (4, &[1, 2], &[(4, 3_700_000)]),
        ]);
        let trouble = trouble(&map).expect("copies lack");
        let words = "3 of 4 placement groups have fewer copies than they were made with, 2 of them a single one. t3 lost \
                     00:01:12 ago. t4 lost 01:01:40 ago";
        assert_eq!(trouble.what, words);
        assert!(trouble.remedy.contains("new files go to other groups"));
        assert_eq!(all_is_well(&map), None);
        let shown = to_json(&map);
        assert_eq!((&shown["groups"], &shown["short"]), (&json!(4), &json!(3)));
        let lost = &shown["lost"][0];
        assert_eq!(
            (&lost["target"], &lost["lost_ms"], &lost["groups"], &lost["catches_up"]),
            (&json!("t3"), &json!(72_000), &json!(2), &json!(false))
        );
    }

    #[test]
    fn a_target_that_serves_again_catches_up() {
        let mut map = map(&[(0, &[1], &[(3, 72_000)]), (1, &[1], &[(2, 5000)]), (2, &[1], &[(2, 9000)])]);
        let node = Node { id: NodeId(2), ..Default::default() };
        let target = Target { id: TargetId(2), node: node.id, ..Default::default() };
        (map.nodes, map.targets) = (vec![node], vec![target]);
        let found = trouble(&map).expect("copies lack");
        let words = "t2 is back and catches up, 2 placement groups left. t3 lost 00:01:12 ago";
        assert!(found.what.contains(words), "{}", found.what);
        assert!(found.remedy.contains("bring the lost targets back"), "{}", found.remedy);
        let shown = to_json(&map);
        assert_eq!(
            (&shown["lost"][0]["target"], &shown["lost"][0]["catches_up"]),
            (&json!("t2"), &json!(true))
        );
        map.away.remove(0);
        let found = trouble(&map).expect("copies lack");
        assert!(found.remedy.ends_with("nothing has to be done"), "{}", found.remedy);
        map.nodes[0].silent_ms = 6000;
        assert!(trouble(&map).expect("copies lack").what.contains("t2 lost 00:00:09 ago"));
    }

    /// "Nothing has to be done" was said of files that could not be read, as one target that lacked a part was back.
    #[test]
    fn a_target_that_is_away_with_the_only_whole_copies_is_named() {
        let mut map = map(&[(0, &[2], &[(1, 5000)]), (1, &[1], &[(2, 9000)])]);
        let node = |id, state| Node { id: NodeId(id), state, ..Default::default() };
        map.nodes = vec![node(1, NodeState::Up), node(2, NodeState::Silent)];
        let target = |id| Target { id: TargetId(id), node: NodeId(id), ..Default::default() };
        map.targets = vec![target(1), target(2)];
        let remedy = trouble(&map).expect("copies lack").remedy;
        assert!(remedy.starts_with("files in 1 of them are neither read nor written until t2"), "{remedy}");
        map.nodes[1].state = NodeState::Up;
        let remedy = trouble(&map).expect("copies lack").remedy;
        assert!(remedy.ends_with("nothing has to be done"), "{remedy}");
    }

    /// "Nothing has to be done" was said for ever.
    #[test]
    fn damage_that_a_target_may_wait_for_as_it_catches_up_is_named() {
        let mut map = map(&[(0, &[1], &[(2, 9000)])]);
        map.nodes = [1, 2].map(|id| Node { id: NodeId(id), ..Default::default() }).to_vec();
        let target = |id| Target { id: TargetId(id), node: NodeId(id), ..Default::default() };
        map.targets = vec![target(1), target(2)];
        map.targets[0].corrupt_blocks = 1;
        let (target, short) = (TargetId(2), Vec::new());
        let (left_bytes, bytes_per_second, left_ms, limit) = (9, 0, None, None);
        map.lagging =
            vec![LaggingTarget { target, groups: 1, short, left_bytes, bytes_per_second, left_ms, limit }];
        let remedy = trouble(&map).expect("copies lack").remedy;
        assert!(remedy.contains("cannot be used on t1 keeps it from going on"), "{remedy}");
        map.targets[0].missing_objects = 1;
        for left_bytes in [9, 0] {
            map.lagging[0].left_bytes = left_bytes;
            let remedy = trouble(&map).expect("copies lack").remedy;
            assert!(remedy.contains("objects that t1 lacks") && remedy.contains("--compare"), "{remedy}");
        }
        map.lagging[0].left_bytes = 9;
        map.lagging[0].left_ms = Some(5);
        let remedy = trouble(&map).expect("copies lack").remedy;
        assert!(remedy.ends_with("nothing has to be done"), "{remedy}");
    }

    #[test]
    fn one_line_says_that_all_copies_are_there_and_none_where_there_are_no_copies() {
        let sound = map(&[(0, &[1], &[]), (1, &[1, 2], &[]), (2, &[2, 1], &[])]);
        assert_eq!(trouble(&sound), None);
        let words = "all copies are there: 2 placement groups with copies have as many as made with";
        assert_eq!(all_is_well(&sound).as_deref(), Some(words));
        assert_eq!(all_is_well(&map(&[(0, &[1], &[])])), None);
    }

    #[test]
    fn of_many_lost_targets_some_are_named() {
        let lost: Vec<(u32, u64)> = (2..9).map(|target| (target, 1000)).collect();
        let found = trouble(&map(&[(1, &[1], &lost)])).expect("copies lack");
        assert!(
            found.what.contains("t5 lost") && found.what.contains(". and 3 more targets"),
            "{}",
            found.what
        );
        assert!(found.what.contains(", one of them a single one. "), "{}", found.what);
    }
}
