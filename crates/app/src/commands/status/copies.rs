//! Placement groups that have fewer copies than they were made with.

use super::troubles::Trouble;
use crate::format;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use vazao_model::{AwayMember, ClusterMap, GroupAway, TargetId};

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

/// The targets that those lack, and for how long: the longest time of each.
fn lost(short: &[&GroupAway]) -> BTreeMap<TargetId, u64> {
    let mut lost = BTreeMap::new();
    for AwayMember { target, ago_ms, .. } in short.iter().flat_map(|away| &away.members) {
        let longest = lost.entry(*target).or_insert(0);
        *longest = (*ago_ms).max(*longest);
    }
    lost
}

fn clock(ago_ms: u64) -> String {
    let seconds = ago_ms / 1000;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
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
    let lost = lost(&short);
    let named =
        lost.iter().take(NAMED_MAX).map(|(target, ago_ms)| format!("{target} lost {} ago", clock(*ago_ms)));
    let more = match lost.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let named = named.collect::<Vec<_>>().join(", ");
    let alone = short.iter().filter(|away| map.members(away.id).len() == 1).count();
    let alone = match alone {
        0 => String::new(),
        1 => "; one of them has a single copy left".to_owned(),
        _ => format!("; {alone} of them have a single copy left"),
    };
    let what = format!(
        "{} of {} have fewer copies than they were made with: {named}{more}{alone}",
        short.len(),
        format::count(count(map) as u64, "placement group", "placement groups"),
    );
    Some(Trouble {
        thing: "copies:".to_owned(),
        what,
        remedy: "their files are read and written with the copies that are left, and new files go to other groups; bring \
                 the lost targets back (see above), which lag then: they do not catch up by themselves in this version"
            .to_owned(),
    })
}

/// The same for programs.
pub(super) fn to_json(map: &ClusterMap) -> Value {
    let short = short(map);
    let lost: Vec<Value> = lost(&short)
        .into_iter()
        .map(|(target, ago_ms)| json!({"target": target.to_string(), "lost_ms": ago_ms}))
        .collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::{Group, GroupId};

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
        let words = "3 of 4 placement groups have fewer copies than they were made with: t3 lost 00:01:12 ago, t4 lost \
                     01:01:40 ago; 2 of them have a single copy left";
        assert_eq!(trouble.what, words);
        assert!(trouble.remedy.contains("new files go to other groups"));
        assert_eq!(all_is_well(&map), None);
        let shown = to_json(&map);
        assert_eq!((&shown["groups"], &shown["short"]), (&json!(4), &json!(3)));
        assert_eq!(shown["lost"][0], json!({"target": "t3", "lost_ms": 72_000}));
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
        assert!(found.what.contains("t5 lost") && found.what.contains("and 3 more"), "{}", found.what);
        assert!(found.what.contains("one of them has a single copy left"), "{}", found.what);
    }
}
