//! What goes wrong in a story of copies: by chance, or just where a rule of members matters.

use super::*;

/// Something that goes wrong with a group's machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Accident {
    Nothing,
    Cut,
    OneWay,
    Flap,
    Pause,
    /// The client does not reach one of them, one way or both.
    CutOff {
        is_one_way: bool,
    },
    /// A member ends while another one is left.
    End,
    /// All members lose power at once.
    Outage,
    /// The primary goes on alone, and loses power.
    Alone,
    /// The metadata service loses power.
    Authority,
    /// The primary is cut off in the moment in which a member counts again.
    Promotion,
    /// The primary goes on without members that the client reaches.
    Parted,
    /// The same, and starts anew.
    Restart,
    /// The only current member is silent, and others have come back that lack what it has acknowledged.
    Last,
    /// The primary is cut off from the last member and the metadata service in the middle of a change.
    HalfDone,
    /// The primary has gone and hears of nothing; what it sends to another member arrives.
    Unheard,
    /// What the primary has given up reaches another member after newer requests.
    Late,
    /// Another client's write comes while the primary waits for the last member.
    Crossing,
    /// All members are killed, and one of them comes back with its disk as it was a while before.
    OldDisk,
}

/// What a story does how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile {
    pub(super) weather: Weather,
    /// Each as often as it stands here.
    pub(super) accidents: &'static [Accident],
    /// It begins as soon as the group is made.
    pub(super) is_new: bool,
    /// Each change is tried once, through any member.
    pub(super) is_impatient: bool,
    /// How often everything is mended and compared.
    pub(super) rests: usize,
    /// Longest time until an ended daemon is started again.
    pub(super) down_ms_max: u64,
}

pub(super) const USUAL: Profile = Profile {
    weather: Weather { lost: 20, broken: 20, late: 20, doubled: 20, killed: 0, power_lost: 0 },
    accidents: &[
        Accident::Cut,
        Accident::Cut,
        Accident::Cut,
        Accident::OneWay,
        Accident::OneWay,
        Accident::Flap,
        Accident::Pause,
        Accident::Pause,
        Accident::CutOff { is_one_way: true },
        Accident::CutOff { is_one_way: false },
        Accident::End,
        Accident::Nothing,
    ],
    is_new: false,
    is_impatient: false,
    rests: 2,
    down_ms_max: 1_500,
};

impl Story {
    pub(super) fn accident(&mut self) {
        let (one, other) = (1 + self.below(self.servers), self.below(self.servers + 1));
        let milliseconds = 200 + self.below(4_000) as u64;
        let duration = Duration::from_millis(milliseconds);
        let cut = |is_one_way, flapping| {
            let (from, to) = (Machine::Server(one), Machine::Server(other));
            Cut { from, to, is_one_way, flapping, duration: Duration::from_secs(1 + milliseconds / 500) }
        };
        let kind = self.profile.accidents[self.below(self.profile.accidents.len())];
        self.note(format!("accident {kind:?} of {one} and {other}"));
        match kind {
            Accident::Cut if one != other => self.cluster.cut(cut(false, None)),
            Accident::OneWay if one != other => self.cluster.cut(cut(true, None)),
            Accident::Flap if one != other => self.cluster.cut(cut(false, Some(duration / 4))),
            Accident::Pause => {
                let pause = [Pause::Stopped, Pause::Suspended, Pause::Frozen][self.below(3)];
                self.cluster.pause(one, pause, duration);
            }
            Accident::CutOff { is_one_way } => {
                let client = Machine::Client(1);
                let (to, flapping) = (Machine::Server(one), None);
                self.cluster.cut(Cut { from: client, to, is_one_way, flapping, duration });
            }
            // One copy is left.
            Accident::End if self.record().current().count() > 1 && self.ends + 1 < self.servers => {
                self.ends += 1;
                let end = [End::Kill, End::PowerLoss][self.below(2)];
                self.note(format!("  {one} ends: {end:?}"));
                self.end(one, end);
                self.cluster.heal();
                self.cluster.clock().sleep(Duration::from_secs(15));
            }
            Accident::Outage => self.lose_all_power(),
            Accident::Alone => self.lose_power_alone(),
            Accident::Authority => self.cluster.end(0, End::PowerLoss),
            Accident::Promotion => self.part_at_a_promotion(one),
            Accident::HalfDone => self.part_in_a_change(false),
            Accident::Crossing => self.part_in_a_change(true),
            Accident::Last => self.lose_the_last(),
            Accident::Unheard => self.go_unheard(),
            Accident::Late => self.send_late(),
            Accident::Parted => self.part_from_others(false),
            Accident::Restart => self.part_from_others(true),
            Accident::OldDisk => self.go_back(one),
            _ => {}
        }
    }

    /// What was synced just before is there.
    fn lose_all_power(&mut self) {
        // What is in flight may be torn.
        self.rest();
        (0..4).for_each(|_| self.change());
        if !self.sync() {
            return;
        }
        (1..=self.servers).for_each(|server| self.end(server, End::PowerLoss));
        self.cluster.heal();
        self.cluster.clock().sleep(Duration::from_secs(40));
    }

    fn end(&mut self, server: usize, end: End) {
        if end == End::PowerLoss {
            self.powerless.insert(server);
        }
        self.cluster.end(server, end);
    }

    /// What was synced is there, and a sync of what was acknowledged before says that it may be lost.
    fn lose_power_alone(&mut self) {
        let Some(last) = self.go_on_alone() else { return };
        self.asked = Some(last);
        (0..self.below(3)).for_each(|_| self.change());
        if self.below(2) == 0 {
            self.sync();
            (0..self.below(3)).for_each(|_| self.change());
        }
        self.asked = None;
        let (boot, losses) = (self.boot, self.losses);
        self.note(format!("  {last} loses power"));
        self.end(last, End::PowerLoss);
        self.cluster.heal();
        self.cluster.clock().sleep(Duration::from_secs(20));
        self.look_for_losses();
        if self.losses > losses {
            let synced = self.sync_since(boot).map_err(|fault| fault.code);
            assert_eq!(synced, Err(Code::Io), "{self:?}\nseed {}: writers do not hear of a loss", self.seed);
        }
        self.rest();
        self.cluster.set_weather(self.profile.weather);
    }

    /// Lets time pass until the record is as it is to be, or for some seconds. False: it is not.
    fn wait_for(&self, is_so: impl Fn(&Membership) -> bool) -> bool {
        (0..100).any(|_| {
            self.cluster.clock().sleep(Duration::from_millis(100));
            self.decided().is_some_and(|record| is_so(&record))
        })
    }

    /// The record as it is where it is decided.
    pub(super) fn decided(&self) -> Option<Membership> {
        self.cluster.meta()?.record_of_group(self.id)
    }

    fn cut_between(&self, one: usize, other: usize, seconds: u64) {
        let (from, to) = (Machine::Server(one), Machine::Server(other));
        let duration = Duration::from_secs(seconds);
        self.cluster.cut(Cut { from, to, is_one_way: false, flapping: None, duration });
    }

    /// Changes through `asked`, and reads of everything at all members, for some seconds.
    fn go_on(&mut self, asked: usize, pause: Duration) {
        self.asked = Some(asked);
        for _ in 0..10 {
            self.change();
            for (server, block) in (1..=self.servers).flat_map(|it| (0..BLOCKS).map(move |block| (it, block)))
            {
                self.read_at(server, block as usize);
            }
            self.look_for_losses();
            self.cluster.clock().sleep(pause);
        }
        self.asked = None;
    }

    fn part_at_a_promotion(&mut self, one: usize) {
        self.cluster.heal();
        self.cluster.set_weather(self.profile.weather);
        let is_current = |record: &Membership| record.current().any(|it| it.target.0 == one as u32);
        self.cluster.pause(one, Pause::Stopped, Duration::from_secs(3));
        if !self.wait_for(|record| !is_current(record)) || !self.wait_for(is_current) {
            return;
        }
        let primary = self.decided().and_then(|record| record.primary().map(|it| it.target.0 as usize));
        let Some(primary) = primary.filter(|primary| *primary != one) else { return };
        self.note(format!("  {primary} is cut off as {one} counts again"));
        (0..=self.servers).filter(|to| *to != primary).for_each(|to| self.cut_between(primary, to, 8));
        self.cluster.clock().sleep(Duration::from_millis(1_500));
        let asked = [primary, one][self.below(2)];
        self.go_on(asked, Duration::from_millis(300));
    }

    /// Cuts all other members off for some seconds; the primary, once it goes on alone.
    fn go_on_alone(&mut self) -> Option<usize> {
        let current = self.all_current()?;
        let (primary, others) = (current[0], &current[1..]);
        for other in others {
            (0..=self.servers).filter(|to| to != other).for_each(|to| self.cut_between(*other, to, 8));
        }
        if !self.wait_for(|record| record.current().count() == 1) {
            return None;
        }
        self.note(format!("  {primary} goes on alone"));
        Some(primary)
    }

    /// The primary goes on without all others, which the client reaches yet; `anew`: and starts anew.
    fn part_from_others(&mut self, anew: bool) {
        let Some(primary) = self.go_on_alone() else { return };
        if anew {
            self.cluster.end(primary, End::Kill);
        }
        self.go_on(primary, Duration::from_millis(50));
    }

    fn lose_the_last(&mut self) {
        self.part_from_others(false);
        let Some(record) = self.decided().filter(|record| record.current().count() == 1) else { return };
        let last = record.primary().map_or(1, |member| member.target.0 as usize);
        self.cluster.pause(last, Pause::Stopped, Duration::from_secs(25));
        self.cluster.clock().sleep(Duration::from_secs(20));
        self.rest();
        self.cluster.set_weather(self.profile.weather);
    }

    /// The numbers of the current members' machines, the primary first, where all members are.
    fn all_current(&self) -> Option<Vec<usize>> {
        self.cluster.heal();
        let record = self.decided().filter(|record| record.current().count() == self.servers)?;
        Some(record.current().map(|member| member.target.0 as usize).collect())
    }

    /// One change through the primary, and nothing after it.
    fn change_at(&mut self, primary: usize) {
        // What is sent in the moment of a cut arrives.
        self.cluster.clock().sleep(Duration::from_millis(1));
        self.asked = Some(primary);
        self.change();
        self.asked = None;
        self.cluster.clock().sleep(Duration::from_secs(4));
        self.rest();
        self.cluster.set_weather(self.profile.weather);
    }

    fn part_in_a_change(&mut self, is_crossed: bool) {
        let Some(current) = self.all_current() else { return };
        let (primary, last) = (current[0], current[current.len() - 1]);
        self.cut_between(primary, last, 8);
        if is_crossed {
            self.crossed = Some(primary);
        } else {
            self.cut_between(primary, 0, 8);
        }
        self.change_at(primary);
        self.crossed = None;
    }

    fn send_late(&mut self) {
        let Some(current) = self.all_current() else { return };
        let block = self.below(BLOCKS as usize);
        self.send_another(block, current[0]);
        // It comes to the primary while what that one sends is late, too.
        self.cluster.set_weather(Weather { late: 1_000, ..Weather::default() });
        self.cluster.clock().sleep(Duration::from_secs(10));
        self.cluster.set_weather(Weather::default());
        self.cluster.clock().sleep(Duration::from_secs(10));
        self.rest();
        self.cluster.set_weather(self.profile.weather);
    }

    fn go_unheard(&mut self) {
        let Some(current) = self.all_current().filter(|current| current.len() == 3) else { return };
        let (primary, second, last) = (current[0], current[1], current[2]);
        self.cut_between(primary, last, 12);
        self.cut_between(primary, 0, 12);
        let (from, to) = (Machine::Server(second), Machine::Server(primary));
        let duration = Duration::from_secs(12);
        self.cluster.cut(Cut { from, to, is_one_way: true, flapping: None, duration });
        if self.wait_for(|record| record.current().all(|member| member.target.0 != primary as u32)) {
            self.cluster.clock().sleep(Duration::from_secs(1));
            self.change_at(primary);
        }
    }

    fn go_back(&mut self, one: usize) {
        let Some((of, image)) = self.image.take() else {
            let image = self.cluster.disk(one).image().expect("copied");
            self.image = Some((one, image));
            return;
        };
        // Older than what a server may miss of its incarnations.
        self.cluster.clock().sleep(Duration::from_secs(10));
        (0..4).for_each(|_| self.change());
        self.note(format!("  {of} comes back as it was"));
        (1..=self.servers).filter(|it| *it != of).for_each(|it| self.cluster.end(it, End::Kill));
        let right = self.cluster.replace_disk(of, image);
        self.cluster.clock().sleep(Duration::from_secs(20));
        self.go_on(of, Duration::from_millis(300));
        self.cluster.replace_disk(of, right);
        self.cluster.heal();
        self.cluster.clock().sleep(Duration::from_secs(20));
    }

    /// Another client writes to a block through `server`, where that comes after other requests.
    pub(super) fn send_another(&mut self, block: usize, server: usize) {
        self.changes += 1;
        self.version += 1;
        let (bytes, offset) = (bytes_of(self.version), block as u64 * BLOCK);
        let object = Some(proto::ObjectAddress { given_up: Vec::new(), ..self.object(0, 0) });
        let checksums = piece_checksums(offset, &bytes);
        let request = proto::WriteRequest { object, offset, checksums, ..Default::default() };
        let deadline_ns = self.cluster.clock().now_ns() + CALL_NS;
        let (transport, address) = (self.cluster.endpoint_of_client(2), format!("data{server}:7070"));
        self.cluster.set_weather(Weather { late: 1_000, ..Weather::default() });
        drop(submit::<op::Write>(&*transport, &address, &request, &bytes, deadline_ns));
        self.cluster.set_weather(self.profile.weather);
        self.note(format!("another client: {block} to {} through {server}", self.version));
        self.contents.send(block, self.version);
    }
}
