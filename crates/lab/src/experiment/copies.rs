//! The load of the GridFS experiments: c machines, each with t copies at once into one server, all by one method.
//!
//! Sources are areas of nodes of their own; the copies are jobs of these nodes, so that bytes go straight to the
//! receiver. What arrived is compared with what was sent, outside the time.

use super::outcome::{Figure, Form};
use super::testbed::{DiskPlan, Plan, Testbed};
use super::{Lab, Measured};
use crate::content::{self, Generator};
use crate::hosts::BitsPerSecond;
use crate::report::size::{MB, MIB, format_size};
use crate::{Error, child};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use vazao_sampler::{Record, Recorder};

/// What the disks give: about what the paper's did.
const DISK_BYTES_PER_S: u64 = 28_000_000;
/// Machines of the paper.
pub(super) const MACHINES: usize = 6;
/// Files up to 256 KiB go in one request whatever the method is: copies are larger.
const COPY_BYTES_MIN: u64 = MIB;
/// How often threads are counted.
const COUNT_EVERY: Duration = Duration::from_millis(50);

/// `c×t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Load {
    /// Machines.
    pub(super) machines: usize,
    /// Copies of each at once.
    pub(super) each: usize,
}

impl Load {
    pub(super) const fn new(machines: usize, each: usize) -> Load {
        Load { machines, each }
    }

    pub(super) fn name(self) -> String {
        format!("{}×{}", self.machines, self.each)
    }

    pub(super) fn copies(self) -> usize {
        self.machines * self.each
    }
}

/// The path between the machines and the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// A gigabit, no delay.
    Near,
    /// 200 Mb/s, a round trip of 50 ms.
    Far,
}

const FAR_RATE: BitsPerSecond = BitsPerSecond(200_000_000);
/// One way.
const FAR_DELAY: Duration = Duration::from_millis(25);

/// One copy experiment.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    /// Compared in turns.
    pub(super) methods: Vec<String>,
    pub(super) loads: Vec<Load>,
    pub(super) route: Route,
    /// Whether disks are slow; otherwise the machine's own.
    pub(super) slow_disks: bool,
    /// In all, shared out to the copies of a load.
    pub(super) total_bytes: u64,
}

/// What one load by one method took.
#[derive(Clone, Debug)]
struct Run {
    seconds: f64,
    bytes: u64,
    complete: usize,
    threads: usize,
    record: Record,
}

/// The figures of a sweep; their keys.
pub(super) const RATE: &str = "rate";
pub(super) const CPU: &str = "cpu";
pub(super) const THREADS: &str = "threads";
pub(super) const MEMORY: &str = "memory";
pub(super) const COMPLETE: &str = "complete";

impl Sweep {
    /// Measures all cells, methods in turns. `prefix` goes before the keys of the figures.
    pub(super) fn measure(&self, lab: &Lab, prefix: &str, title: &str) -> Result<Measured, Error> {
        let bed = Testbed::new(lab, &self.plan())?;
        let mut figures = self.figures(prefix, title);
        let mut gaps = Vec::new();
        for (at, &load) in self.loads.iter().enumerate() {
            let bytes_each = (self.total_bytes / load.copies() as u64).max(COPY_BYTES_MIN);
            prepare(lab, &bed, load, bytes_each)?;
            for repetition in 0..lab.repetitions() {
                for method in &self.methods {
                    match copy(lab, &bed, load, bytes_each, method, repetition) {
                        Ok(run) => record(&mut figures, at, method, load, &run),
                        Err(error) => gaps.push(format!("{} {method}: {error}", load.name())),
                    }
                    lab.check()?;
                }
            }
            clear(&bed, load)?;
        }
        let setup = vec![self.describe(&bed)];
        let scale = format!(
            "{} shared out to the copies of a load, at least {} each, {} repetitions",
            format_size(self.total_bytes),
            format_size(COPY_BYTES_MIN),
            lab.repetitions()
        );
        Ok(Measured { scale, setup, figures, gaps })
    }

    fn plan(&self) -> Plan {
        let machines = self.loads.iter().map(|load| load.machines).max().unwrap_or(1);
        let each = self.loads.iter().map(|load| load.each).max().unwrap_or(1);
        let copies_max = self.loads.iter().map(|load| load.copies()).max().unwrap_or(1) as u64;
        let size_bytes = self.total_bytes.max(copies_max * COPY_BYTES_MIN) * 2 + 256 * MIB;
        let far = self.route == Route::Far;
        Plan {
            // The first receives, the others send.
            data_servers: machines + 1,
            clients: 1,
            disk: self.slow_disks.then_some(DiskPlan { size_bytes, bytes_per_second: DISK_BYTES_PER_S }),
            link: Some(if far { FAR_RATE } else { BitsPerSecond::mega(1000) }),
            server_delay: far.then_some(FAR_DELAY),
            areas: true,
            copies_pair_max: Some(each),
            copies_in_max: Some(usize::try_from(copies_max).unwrap_or(usize::MAX).max(256)),
            ..Plan::default()
        }
    }

    fn describe(&self, bed: &Testbed<'_>) -> String {
        let path = match self.route {
            Route::Near => "links of 1000 Mb/s".to_owned(),
            Route::Far => format!(
                "links of {} Mb/s and a round trip of {} ms ({})",
                FAR_RATE.0 / 1_000_000,
                FAR_DELAY.as_millis() * 2,
                bed.delay_by()
            ),
        };
        let disks = match self.slow_disks {
            true => format!("disks of {} MB/s (bounded loop devices)", DISK_BYTES_PER_S / 1_000_000),
            false => "the machine's own disk".to_owned(),
        };
        format!("c×t: c machines with t copies at once each, into one; {path}; {disks}.")
    }

    fn figures(&self, prefix: &str, title: &str) -> Vec<Figure> {
        let x: Vec<String> = self.loads.iter().map(|load| load.name()).collect();
        let kinds = [
            (RATE, "rate written by the receiver, synced", "MB/s"),
            (CPU, "processors of the whole machine, all hosts together", "% of a core"),
            (THREADS, "threads of the receiver and one sender, at most", "threads"),
            (MEMORY, "resident memory of the receiver, at most", "MiB"),
            (COMPLETE, "copies that arrived whole", "%"),
        ];
        let figure = |(key, what, unit): (&str, &str, &str)| {
            let title = format!("{title}: {what}");
            Figure::new(
                &format!("{prefix}{key}"),
                &title,
                ("machines × copies of each", x.clone()),
                unit,
                Form::Lines,
            )
        };
        kinds.map(figure).to_vec()
    }
}

fn record(figures: &mut [Figure], at: usize, method: &str, load: Load, run: &Run) {
    let receiver = run.record.processes.iter().find(|process| process.name == "data1");
    let values = [
        run.bytes as f64 / run.seconds / MB,
        run.record.machine_busy_s / run.seconds.max(1e-9) * 100.0,
        run.threads as f64,
        receiver.map_or(0.0, |process| process.resident_peak_bytes as f64 / MIB as f64),
        run.complete as f64 / load.copies() as f64 * 100.0,
    ];
    for (figure, value) in figures.iter_mut().zip(values) {
        figure.series_mut(method).record(at, value);
    }
}

/// The disk of a sending machine, counted from 0.
fn sender_disk<'a>(bed: &'a Testbed<'_>, machine: usize) -> Result<&'a Path, Error> {
    let disk = bed.server_disks().get(machine + 1);
    disk.map(PathBuf::as_path)
        .ok_or_else(|| Error::Failed(format!("machine {machine}: the plan has no such")))
}

fn file_stream(lab: &Lab, machine: usize, number: usize) -> u64 {
    content::stream(lab.seed, &[machine as u64, number as u64])
}

/// Writes what will be copied.
fn prepare(lab: &Lab, bed: &Testbed<'_>, load: Load, bytes: u64) -> Result<(), Error> {
    for machine in 0..load.machines {
        let directory = sender_disk(bed, machine)?.join("out");
        fs::create_dir(&directory).map_err(Error::at(directory.display()))?;
        for number in 0..load.each {
            let path = directory.join(number.to_string());
            content::write_file(&path, file_stream(lab, machine, number), bytes)?;
        }
    }
    Ok(())
}

fn clear(bed: &Testbed<'_>, load: Load) -> Result<(), Error> {
    (0..load.machines).try_for_each(|machine| {
        let directory = sender_disk(bed, machine)?.join("out");
        fs::remove_dir_all(&directory).map_err(Error::at(directory.display()))
    })
}

/// All machines start their copies at once; the time ends with the last.
fn copy(
    lab: &Lab,
    bed: &Testbed<'_>,
    load: Load,
    bytes_each: u64,
    method: &str,
    repetition: u32,
) -> Result<Run, Error> {
    let into = format!("in-{}-{repetition}-{}", load.name(), method.replace([':', '=', ','], "-"));
    let received = bed.server_disks().first().map(|disk| disk.join(&into)).unwrap_or_default();
    for machine in 0..load.machines {
        let directory = received.join(machine.to_string());
        fs::create_dir_all(&directory).map_err(Error::at(directory.display()))?;
    }
    let recorder = Recorder::new(lab.clock.clone(), bed.watched());
    let counted = [bed.process("data1")?, bed.process("data2")?];
    let start_ns = lab.clock.now_ns();
    let (ended, record) = recorder.during(|| {
        while_counting(lab, &counted, || {
            let commands = (0..load.machines).map(|machine| start(bed, machine, &into, method));
            let commands: Vec<Child> = commands.collect::<Result<_, Error>>()?;
            // All are waited for, whatever becomes of one: none goes on beside the next measurement.
            commands.into_iter().map(|child| wait(lab, child)).fold(Ok(()), Result::and)
        })
    });
    let seconds = lab.clock.now_ns().saturating_sub(start_ns) as f64 / 1e9;
    let (ended, threads) = ended;
    let complete = compare(lab, &received, load, bytes_each);
    fs::remove_dir_all(&received).map_err(Error::at(received.display()))?;
    rustix::fs::sync();
    ended?;
    Ok(Run { seconds, bytes: bytes_each * complete as u64, complete, threads, record })
}

fn start(bed: &Testbed<'_>, machine: usize, into: &str, method: &str) -> Result<Child, Error> {
    let mut command = bed.vazao(0)?;
    command.args(["cp", "-r", "--method", method]);
    command.args([format!("data{}:/disk/out", machine + 2), format!("data1:/disk/{into}/{machine}/")]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    child.map_err(Error::at("vazao cp"))
}

fn wait(lab: &Lab, child: Child) -> Result<(), Error> {
    let output = child::output(child, "vazao cp", &lab.stop)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        // Where many files failed, the last line only counts them.
        false => {
            let lines: Vec<&str> = said.lines().collect();
            let (first, last) = (lines.first().unwrap_or(&"failed"), lines.last().unwrap_or(&""));
            Err(Error::Failed(format!("vazao cp: {first} {}", if lines.len() > 1 { last } else { "" })))
        }
    }
}

/// Runs `work` and counts the threads of processes meanwhile: the most at any moment, all together.
fn while_counting<T>(lab: &Lab, processes: &[u32], work: impl FnOnce() -> T) -> (T, usize) {
    let (stop, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let now = processes.iter().map(|process| threads_of(*process)).sum();
                most.fetch_max(now, Ordering::Relaxed);
                lab.clock.sleep(COUNT_EVERY);
            }
        });
        let result = work();
        stop.store(true, Ordering::Relaxed);
        (result, most.load(Ordering::Relaxed))
    })
}

fn threads_of(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count)
}

/// How many files arrived with the bytes that were sent.
fn compare(lab: &Lab, received: &Path, load: Load, bytes: u64) -> usize {
    let files = (0..load.machines).flat_map(|machine| (0..load.each).map(move |number| (machine, number)));
    files
        .filter(|&(machine, number)| {
            let path = received.join(machine.to_string()).join("out").join(number.to_string());
            let Ok(contents) = fs::read(path) else { return false };
            let mut generator = Generator::new(file_stream(lab, machine, number), MIB as usize);
            contents.len() as u64 == bytes
                && contents
                    .chunks(MIB as usize)
                    .zip((0..bytes).step_by(MIB as usize))
                    .all(|(chunk, offset)| generator.check(offset, chunk).is_ok())
        })
        .count()
}
