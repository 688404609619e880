//! What goes wrong in a story: links, machines and the weather.

use super::{CLIENTS, DATA_SERVERS, Parted};
use crate::clock::Pause;
use crate::network::{Cut, End, Machine, Weather};
use rand::RngExt;
use std::time::Duration;

impl Parted {
    /// How often requests go wrong until the next rest.
    pub(super) fn change_weather(&mut self) {
        let random = &mut self.random;
        let mut chance = |share: f64, max: u32| {
            if random.random_bool(share) { random.random_range(1..=max) } else { 0 }
        };
        let weather = Weather {
            lost: chance(0.4, 10),
            broken: chance(0.4, 30),
            killed: chance(0.3, 6),
            power_lost: chance(0.3, 6),
            late: chance(0.5, 60),
            doubled: chance(0.5, 60),
        };
        self.note(format!("{weather:?}"));
        self.cluster.set_weather(weather);
    }

    pub(super) fn maybe_part(&mut self) {
        match self.random.random_range(0..1000) {
            0..90 => self.cut(),
            90..120 => self.pause(),
            120..150 => self.lose_power(),
            150..165 => {
                let number = self.random.random_range(0..=DATA_SERVERS);
                self.note(format!("kill {number}"));
                self.cluster.end(number, End::Kill);
            }
            165..175 => self.set_date(),
            _ => {}
        }
    }

    /// A while: within what calls wait for, about as long, or longer.
    fn while_ms(&mut self) -> u64 {
        match self.random.random_range(0..3) {
            0 => self.random.random_range(10..2_000),
            1 => self.random.random_range(2_000..20_000),
            _ => self.random.random_range(20_000..90_000),
        }
    }

    /// Two machines with a link that something goes over, in either order.
    fn link(&mut self) -> (Machine, Machine) {
        let server = self.random.random_range(0..=DATA_SERVERS);
        let other = match self.random.random_bool(0.6) {
            true => Machine::Client(self.random.random_range(0..CLIENTS as u64)),
            false => {
                let step = self.random.random_range(1..=DATA_SERVERS);
                Machine::Server((server + step) % (DATA_SERVERS + 1))
            }
        };
        let server = Machine::Server(server);
        if self.random.random_bool(0.5) { (server, other) } else { (other, server) }
    }

    fn cut(&mut self) {
        let (from, to) = self.link();
        let is_flapping = self.random.random_bool(0.3);
        let half = Duration::from_millis(self.random.random_range(50..4_000));
        let duration = Duration::from_millis(self.while_ms());
        let (is_one_way, flapping) = (self.random.random_bool(0.4), is_flapping.then_some(half));
        let cut = Cut { from, to, is_one_way, flapping, duration };
        self.note(format!("{cut:?}"));
        self.cluster.cut(cut);
        self.tried.cuts += 1;
    }

    fn pause(&mut self) {
        let number = self.random.random_range(0..=DATA_SERVERS);
        let pauses = [Pause::Stopped, Pause::Suspended, Pause::Frozen];
        let pause = pauses[self.random.random_range(0..pauses.len())];
        let duration = Duration::from_millis(self.while_ms());
        self.note(format!("{number} is {pause:?} for {duration:?}"));
        self.cluster.pause(number, pause, duration);
        self.tried.pauses += 1;
    }

    /// Of one machine, or of all.
    fn lose_power(&mut self) {
        let count = DATA_SERVERS + 1;
        let number = self.random.random_range(0..=count);
        self.note(format!("power loss of {number} ({count}: all)"));
        let hit = if number == count { 0..count } else { number..number + 1 };
        hit.for_each(|number| self.cluster.end(number, End::PowerLoss));
    }

    fn set_date(&mut self) {
        let number = self.random.random_range(0..=DATA_SERVERS);
        let by_ms = self.random.random_range(-100_000..100_000);
        self.note(format!("the date of {number} is set by {by_ms} ms"));
        self.cluster.clock_of(Machine::Server(number)).set_wall(by_ms);
    }
}
