//! Files that one client has open while another one removes them, and the service loses its table of opens.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use vazao_client::{Client, Error, File, NewInode, OpenMode};
use vazao_meter::Clock;
use vazao_model::ids::ROOT;
use vazao_model::{Code, InodeId};
use vazao_sim::network::{End, Weather};
use vazao_sim::{Cluster, ClusterOptions};

const SEEDS: u64 = 25;
const STEPS: usize = 250;
const NAMES: usize = 8;
const OPEN_MAX: usize = 12;

/// A client renews its session every few seconds, whatever else it does.
const RENEWAL_NS: u64 = 4_000_000_000;

/// Less than the time after which the service ends a silent client's session, and with it what that had open.
const SILENT_NS_MAX: u64 = 50_000_000_000;

const WEATHER: Weather = Weather { lost: 15, broken: 40, killed: 6, power_lost: 0, late: 0, doubled: 0 };

struct World {
    cluster: Cluster,
    random: StdRng,
    opening: Client,
    removing: Client,
    open: Vec<File>,
    /// When the session that has them was last renewed.
    renewed_ns: u64,
    /// Of files that were open when they lost their last name, how often they were looked at.
    looked_at_orphans: usize,
}

fn name(number: usize) -> Vec<u8> {
    format!("n{number}").into_bytes()
}

impl World {
    fn new(seed: u64) -> World {
        let cluster = Cluster::new(ClusterOptions { seed, data_servers: 1, down_ms_max: 3_000 });
        let (opening, removing) = (cluster.client(1), cluster.client(2));
        let random = StdRng::seed_from_u64(seed);
        World { cluster, random, opening, removing, open: Vec::new(), renewed_ns: 0, looked_at_orphans: 0 }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random.random_range(0..below)
    }

    fn step(&mut self) {
        match self.draw(16) {
            0..4 => self.create(),
            4..7 => self.open(),
            7..10 => self.remove(),
            10 => self.unnamed(),
            11 if !self.open.is_empty() => {
                let chosen = self.draw(self.open.len());
                // Whether the service hears of it is not what is tested.
                let _ = self.open.swap_remove(chosen).close();
            }
            12 if self.draw(6) == 0 => self.cluster.end(0, End::Kill),
            _ => self.renew(),
        }
        if self.now_ns() > self.renewed_ns + RENEWAL_NS {
            self.renew();
        }
        self.look();
    }

    fn now_ns(&self) -> u64 {
        self.cluster.clock().now_ns()
    }

    fn renew(&mut self) {
        if self.now_ns() > self.renewed_ns + SILENT_NS_MAX {
            self.open.clear();
        }
        let ticked = [self.opening.tick(), self.removing.tick()];
        if ticked[0].is_ok() {
            self.renewed_ns = self.now_ns();
        }
        for error in ticked.into_iter().filter_map(Result::err) {
            assert_known(&error);
        }
    }

    fn keep(&mut self, file: File) {
        self.open.push(file);
        if self.open.len() > OPEN_MAX {
            let chosen = self.draw(self.open.len());
            let _ = self.open.swap_remove(chosen).close();
        }
    }

    fn create(&mut self) {
        let name = name(self.draw(NAMES));
        match self.opening.create_file(ROOT, &name, &NewInode::default(), false) {
            Ok((_, file)) => self.keep(file),
            Err(error) => assert_known(&error),
        }
    }

    fn open(&mut self) {
        let name = name(self.draw(NAMES));
        let mode = OpenMode { read: true, ..OpenMode::default() };
        match self.opening.lookup(ROOT, &name).and_then(|found| self.opening.open_file(found.inode, mode)) {
            Ok(file) => self.keep(file),
            Err(error) if error.code == Code::NotFound => {}
            Err(error) => assert_known(&error),
        }
    }

    /// A file without a name is held from its beginning; with one it is a file that is open.
    fn unnamed(&mut self) {
        let name = name(self.draw(NAMES));
        let made = self.opening.create_unnamed(ROOT, &NewInode::default());
        let Ok((attributes, file)) = made else { return };
        let _ = self.opening.link(attributes.inode, ROOT, &name);
        self.keep(file);
    }

    fn remove(&mut self) {
        let name = name(self.draw(NAMES));
        match self.removing.unlink(ROOT, &name) {
            Err(error) if error.code != Code::NotFound => assert_known(&error),
            _ => {}
        }
    }

    /// Whatever is open is there, as long as the service can be reached.
    fn look(&mut self) {
        let silent_since = self.renewed_ns + SILENT_NS_MAX;
        for file in &self.open {
            if self.cluster.clock().now_ns() > silent_since {
                return self.open.clear();
            }
            match file.attributes() {
                Ok(attributes) => self.looked_at_orphans += usize::from(attributes.links == 0),
                Err(error) => assert_known(&error),
            }
        }
    }

    fn finish(mut self) -> usize {
        self.cluster.heal();
        let everything: Vec<InodeId> = self.open.iter().map(File::inode).collect();
        self.open.drain(..).for_each(|file| file.close().expect("the cluster is up"));
        for number in 0..NAMES {
            match self.removing.unlink(ROOT, &name(number)) {
                Err(error) if error.code != Code::NotFound => panic!("{error}"),
                _ => {}
            }
        }
        for _ in 0..4 {
            for client in [&self.opening, &self.removing] {
                client.tick().expect("the cluster is up");
            }
        }
        for inode in everything {
            let gone = self.removing.attributes(inode).expect_err("it is closed and removed");
            assert_eq!(gone.code, Code::Stale, "{inode}: {gone}");
        }
        self.looked_at_orphans
    }
}

/// What bad weather does, and nothing that says of an open file that it is gone.
#[track_caller]
fn assert_known(error: &Error) {
    let is_weather = matches!(
        error.code,
        Code::Timeout | Code::Unreachable | Code::Disconnected | Code::Unavailable | Code::Overloaded
    );
    assert!(is_weather, "{:?}: {error}", error.code);
}

#[test]
fn a_file_that_is_open_outlives_its_last_name_whoever_removes_it_and_whatever_fails() {
    let mut looked_at = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        world.cluster.set_weather(WEATHER);
        (0..STEPS).for_each(|_| world.step());
        looked_at += world.finish();
    }
    assert!(looked_at > 1000, "only {looked_at} looks at open files without a name");
}
