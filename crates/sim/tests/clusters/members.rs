//! Members of placement groups ask one another for leases, and report who is silent, while links are cut, machines
//! pause and servers restart. Nothing lies in such groups yet: the story is who believes what.

use crate::seeds::wanted;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::checksum::piece_checksums;
use vazao_model::cluster::membership::{Membership, Standing};
use vazao_model::{GroupId, TargetId};
use vazao_sim::clock::Pause;
use vazao_sim::network::{Cut, End, Machine};
use vazao_sim::{Cluster, ClusterOptions};
use vazao_store::MemberView;
use vazao_wire::messages::members::membership;
use vazao_wire::transport::{call, submit};
use vazao_wire::{op, proto};

const STEP: Duration = Duration::from_millis(50);
const META: usize = 0;

/// A cluster with one group, whose members are the targets of all data servers.
struct Group {
    cluster: Cluster,
    id: GroupId,
    servers: usize,
    random: u64,
    seed: u64,
    /// Moments at which a member might serve, and at which one might acknowledge; epochs that were told.
    served: u64,
    acknowledged: u64,
}

impl Group {
    fn new(seed: u64, servers: usize) -> Group {
        let mut group = Group::just_made(seed, servers);
        group.pass(6_000);
        assert_eq!(group.serving(), (1..=servers).collect(), "all of a new group serve");
        group
    }

    /// A group that none of its members knows yet.
    fn just_made(seed: u64, servers: usize) -> Group {
        let options = ClusterOptions { seed, data_servers: servers, down_ms_max: 1_500 };
        let cluster = Cluster::new(options);
        // Until all have reported, and know their processes.
        cluster.clock().sleep(Duration::from_secs(5));
        let targets: Vec<TargetId> = (1..=servers).map(|number| TargetId(number as u32)).collect();
        let id = cluster.meta().expect("it is up").make_group(&targets).expect("different machines");
        let (served, acknowledged) = (0, 0);
        Group { cluster, id, servers, random: seed, seed, served, acknowledged }
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % end as u64) as usize
    }

    /// What each member that runs believes, by its machine.
    fn views(&self) -> BTreeMap<usize, MemberView> {
        let of_group = |view: &MemberView| view.group == self.id;
        let views = self.cluster.memberships().into_iter();
        views.filter_map(|(number, views)| Some((number, views.into_iter().find(of_group)?))).collect()
    }

    /// The record, as the metadata service has it.
    fn record(&self) -> Membership {
        let request = proto::GetGroupsRequest { target: 1, after: self.id.0 - 1, limit: 1 };
        let deadline_ns = self.cluster.clock().now_ns() + 1_000_000_000;
        let told =
            call::<op::GetGroups>(self.cluster.transport(), vazao_sim::cluster::META, &request, deadline_ns);
        let told = told.expect("the metadata service is up");
        membership(&told.groups[0]).expect("whole").1
    }

    fn serving(&self) -> BTreeSet<usize> {
        self.views().into_iter().filter(|(_, view)| view.may_serve).map(|(number, _)| number).collect()
    }

    /// Lets time pass, and holds the model's invariants against what the members believe at each moment.
    fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / STEP.as_millis() as u64 {
            self.cluster.clock().sleep(STEP);
            self.check();
        }
    }

    /// One member at most may acknowledge, and all that serve then count for it: none of them serves what was before.
    fn check(&mut self) {
        let views = self.views();
        let serving: Vec<&MemberView> = views.values().filter(|view| view.may_serve).collect();
        let leading: Vec<&MemberView> = views.values().filter(|view| view.may_acknowledge).collect();
        assert!(leading.len() <= 1, "seed {}: two primaries: {leading:?}", self.seed);
        for leader in &leading {
            let counts = |view: &MemberView| leader.counting.contains(&view.target);
            let stale = serving.iter().find(|view| !counts(view));
            assert_eq!(stale, None, "seed {}: it serves beside {leader:?}", self.seed);
        }
        self.served += serving.len() as u64;
        self.acknowledged += leading.len() as u64;
    }

    fn cut(&self, from: usize, to: usize, is_one_way: bool, flapping: Option<Duration>, seconds: u64) {
        let (from, to) = (Machine::Server(from), Machine::Server(to));
        self.cluster.cut(Cut { from, to, is_one_way, flapping, duration: Duration::from_secs(seconds) });
    }

    /// Everything is whole: each member knows the present record, and is in it with its present process.
    #[track_caller]
    fn agrees(&mut self) {
        self.cluster.heal();
        self.pass(10_000);
        let (record, views) = (self.record(), self.views());
        assert_eq!(views.len(), self.servers, "seed {}", self.seed);
        for view in views.values() {
            assert_eq!(view.record, record, "seed {}: {}", self.seed, view.target);
        }
    }

    /// A client asks a member for an object of the group, which may not know that yet.
    fn ask_for(&self, number: usize) {
        let object = proto::ObjectAddress { inode: 1, generation: 1, group: self.id.0, ..Default::default() };
        let request = proto::StatObjectRequest { object: Some(object) };
        let deadline_ns = self.cluster.clock().now_ns() + 1_000_000_000;
        let address = format!("data{number}:7070");
        // It may well be down.
        let _ = call::<op::StatObject>(self.cluster.transport(), &address, &request, deadline_ns);
    }

    fn lags(&self, number: usize) -> bool {
        let record = self.record();
        let member = record.member(TargetId(number as u32)).expect("it is a member");
        matches!(member.standing, Standing::Lagging { .. })
    }

    /// Something that is not synced.
    fn write(&self) {
        // A number that the metadata service has not given out yet: it takes the object for no orphan.
        let (inode, generation, group) = (1 << 40, 1, self.id.0);
        let object = Some(proto::ObjectAddress { inode, generation, group, ..Default::default() });
        let checksums = piece_checksums(0, &[7; 100]);
        let request = proto::WriteRequest { object, checksums, ..Default::default() };
        let deadline_ns = self.cluster.clock().now_ns() + 1_000_000_000;
        let sent =
            submit::<op::Write>(self.cluster.transport(), "data1:7070", &request, &[7; 100], deadline_ns);
        sent.wait().expect("the primary is up");
    }

    /// Something happens to a machine or a link.
    fn accident(&mut self) {
        let (one, other) = (1 + self.below(self.servers), self.below(self.servers + 1));
        let milliseconds = 200 + self.below(4_000) as u64;
        let duration = Duration::from_millis(milliseconds);
        match self.below(10) {
            0..3 if one != other => self.cut(one, other, false, None, 1 + milliseconds / 500),
            3..5 if one != other => self.cut(one, other, true, None, 1 + milliseconds / 500),
            5..6 if one != other => self.cut(one, other, false, Some(duration / 4), 10),
            6..8 => {
                let pause = [Pause::Stopped, Pause::Suspended, Pause::Frozen][self.below(3)];
                self.cluster.pause(one, pause, duration);
            }
            8 => self.cluster.end(one, End::Kill),
            _ => {}
        }
        let passes = 100 + self.below(6_000) as u64;
        self.pass(passes);
    }
}

#[test]
fn a_member_that_is_cut_off_loses_its_lease_in_time_and_is_out_of_the_record() {
    for servers in [2, 3] {
        let mut group = Group::new(1, servers);
        let last = servers;
        (0..last).for_each(|other| group.cut(other, last, false, None, 20));
        let cut_ns = group.cluster.clock().now_ns();
        while group.serving().contains(&last) {
            group.pass(50);
        }
        let served_ms = (group.cluster.clock().now_ns() - cut_ns) / 1_000_000;
        assert!((1_000..=2_020).contains(&served_ms), "{served_ms} ms of {servers}");
        group.pass(4_000);
        assert!(group.lags(last), "{servers}");
        assert_eq!(group.serving(), (1..last).collect(), "the others go on");
        assert!(group.views()[&1].may_acknowledge);
        assert_eq!(group.views()[&last].record.epoch, 1, "it was not told");
        group.agrees();
        assert!(!group.lags(last), "it has caught up");
        assert_eq!(group.serving(), (1..=last).collect());
    }
}

#[test]
fn of_two_whose_link_is_cut_either_way_the_later_in_the_list_goes() {
    for (from, to, is_one_way) in [(1, 2, false), (1, 2, true), (2, 1, true)] {
        let mut group = Group::new(2, 2);
        group.cut(from, to, is_one_way, None, 20);
        group.pass(5_000);
        assert!(group.lags(2) && !group.lags(1), "{from} {to} {is_one_way}");
        assert_eq!(group.serving(), BTreeSet::from([1]));
        assert_eq!(group.views()[&2].record.epoch, 2, "it hears so from the metadata service");
    }
}

#[test]
fn a_member_that_stood_still_does_not_accuse_the_others() {
    for pause in [Pause::Stopped, Pause::Suspended] {
        let mut group = Group::new(3, 2);
        // Between two questions: the answer to one that it finds later would be a sign of life.
        group.pass(250);
        // Nothing can be said of the one that is paused meanwhile.
        group.cut(2, META, false, None, 8);
        group.cluster.pause(1, pause, Duration::from_secs(6));
        group.pass(5_950);
        assert_eq!(group.serving(), BTreeSet::new(), "{pause:?}: neither holds a lease");
        group.pass(1_000);
        assert_eq!(group.record().epoch, 1, "{pause:?}");
        group.pass(3_000);
        assert_eq!(group.serving(), BTreeSet::from([1, 2]), "{pause:?}: in the same epoch");
    }
}

#[test]
fn a_server_that_starts_anew_lags_and_catches_up_behind_the_others() {
    let mut group = Group::new(4, 2);
    group.cluster.end(1, End::Kill);
    let is_out = |group: &Group| group.record().epoch > 1;
    while !is_out(&group) {
        group.pass(50);
    }
    assert!(group.lags(1) && !group.lags(2), "{:?}", group.record());
    group.pass(12_000);
    let record = group.record();
    let order: Vec<u32> = record.current().map(|member| member.target.0).collect();
    assert_eq!(order, [2, 1], "{record:?}");
    assert_eq!(group.serving(), BTreeSet::from([1, 2]));
    assert!(group.views()[&2].may_acknowledge);
    group.agrees();
}

/// A group of which no process is left waited for one that had been put out before, without end.
#[test]
fn when_all_members_have_ended_one_leads_once_it_is_back() {
    for (end, losses) in [(End::Kill, 0), (End::PowerLoss, 1)] {
        let mut group = Group::new(5, 2);
        group.cluster.end(1, end);
        group.cluster.end(2, end);
        // Without power kept it is waited 30 s for one that has more. One that ended clean has all.
        group.pass(45_000);
        let record = group.record();
        assert_eq!(group.serving(), BTreeSet::from([1, 2]), "{end:?}: {record:?}");
        assert!(record.losses <= losses, "{end:?}: {record:?}");
        group.agrees();
    }
}

/// The process after the one that had found the loss said that its machine ran on: it led at once, before a member that
/// had kept its power, and what was lost counted as there.
#[test]
fn a_loss_of_power_counts_also_where_the_next_process_is_killed_before_it_can_say_so() {
    let mut group = Group::new(6, 2);
    group.write();
    for end in [End::PowerLoss, End::Kill] {
        group.cluster.end(1, end);
        group.cluster.end(2, end);
        group.pass(8_000);
    }
    group.pass(60_000);
    let record = group.record();
    assert_eq!((group.serving().len(), record.losses), (2, 1), "{record:?}");
}

#[test]
fn one_member_at_most_acknowledges_and_all_that_serve_count_for_it_whatever_happens() {
    let (mut epochs, mut served, mut acknowledged) = (0, 0, 0);
    for seed in 0..30 {
        let mut group = Group::new(seed, 2 + seed as usize % 2);
        group.cluster.let_clocks_drift();
        (0..8).for_each(|_| group.accident());
        group.agrees();
        epochs += group.record().epoch;
        (served, acknowledged) = (served + group.served, acknowledged + group.acknowledged);
    }
    assert!(epochs > 60 && served > 5_000 && acknowledged > 2_000, "{epochs} {served} {acknowledged}");
}

/// Its members hear of it at different times, or their next processes do: who waits for no leases of the one before has
/// to be right.
#[test]
fn all_that_serve_count_for_the_one_that_acknowledges_also_while_members_of_a_new_group_start_anew() {
    let (mut epochs, mut first, mut acknowledged) = (0, 0, 0);
    for seed in wanted(0..16) {
        let mut group = Group::just_made(seed, 2 + seed as usize % 2);
        group.cluster.let_clocks_drift();
        for _ in 0..4 {
            let one = 1 + group.below(group.servers);
            match group.below(3) {
                0 => group.ask_for(one),
                1 => group.cluster.end(one, End::Kill),
                _ => group.cut(one, META, false, None, 2),
            }
            let passes = group.below(1_000) as u64;
            group.pass(passes);
        }
        let is_first = |view: &MemberView| view.record.epoch == 1 && view.may_acknowledge;
        first += group.views().values().filter(|view| is_first(view)).count();
        (0..3).for_each(|_| group.accident());
        group.agrees();
        epochs += group.record().epoch;
        acknowledged += group.acknowledged;
    }
    assert!(epochs > 16 && first > 0 && acknowledged > 500, "{epochs} {first} {acknowledged}");
}
