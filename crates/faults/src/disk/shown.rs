//! Disks as files: mounted by a process of their own, which is told on its standard input when power goes.
//!
//! A process of its own, because a process that reads a file system whose device it also serves never ends: killed, it
//! waits for a request that no process is left to answer.
//!
//! The words, one line each, answered by one line each: `lose SEED DROPPED TORN DISK…` (all of these disks at one
//! moment), `arm WRITES SEED DROPPED TORN DISK…` (the same, once so many writes have come), `gain DISK…`, `lie DISK…`.
//! Disks are counted from 0. At the end of the input the disks are gone.

use super::{Losses, Odds, VolatileDisk};
use crate::clock::now_ns;
use crate::failure::{Failure, Outcome};
use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use vazao_fuse::{MountOptions, SINGLE_NAME, SingleFile, Uring, mount_single};

/// Disks that lose power together. One lock for all: no disk takes anything after another one has lost power.
#[derive(Debug)]
struct Power {
    disks: Vec<VolatileDisk>,
    /// A loss that comes by itself, with a write.
    armed: Option<Armed>,
    /// The last loss, until power is back.
    lost: Option<Loss>,
}

#[derive(Debug)]
struct Armed {
    /// Writes until then.
    writes: u64,
    draw: Draw,
}

/// How a loss is drawn, and for which disks.
#[derive(Clone, Debug)]
struct Draw {
    seed: u64,
    odds: Odds,
    disks: Vec<usize>,
}

impl Power {
    fn lose(&mut self, draw: &Draw) -> Loss {
        let mut loss = Loss { at_ns: now_ns(), writes: Losses::default() };
        for number in &draw.disks {
            let seed = draw.seed.wrapping_add(*number as u64);
            loss.writes += self.disks[*number].lose_power(seed, draw.odds);
        }
        self.armed = None;
        *self.lost.get_or_insert(loss)
    }

    /// A write has come.
    fn count(&mut self) {
        let Some(armed) = &mut self.armed else { return };
        armed.writes = armed.writes.saturating_sub(1);
        if armed.writes == 0 {
            let draw = armed.draw.clone();
            self.lose(&draw);
        }
    }

    fn gain(&mut self, disks: &[usize]) {
        disks.iter().for_each(|number| self.disks[*number].gain_power());
        self.lost = None;
    }
}

/// One of the disks, as the kernel reads and writes it.
struct Shared {
    power: Arc<Mutex<Power>>,
    number: usize,
}

impl SingleFile for Shared {
    fn length(&self) -> u64 {
        self.power.lock().disks[self.number].length()
    }
    fn read(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.power.lock().disks[self.number].read(buffer, offset);
        Ok(())
    }
    fn write(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        let mut power = self.power.lock();
        power.disks[self.number].write(bytes, offset);
        power.count();
        Ok(())
    }
    fn zero(&self, range: Range<u64>) -> std::io::Result<()> {
        let mut power = self.power.lock();
        power.disks[self.number].zero(range);
        power.count();
        Ok(())
    }
    fn flush(&self) -> std::io::Result<()> {
        self.power.lock().disks[self.number].flush();
        Ok(())
    }
}

/// Arguments of the process that serves disks.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Bytes of each disk
    #[arg(long)]
    length: u64,
    /// Bytes that the disks take whole or not at all
    #[arg(long, default_value_t = super::SECTOR_BYTES)]
    sector: u64,
    /// Where each disk is mounted, as the file `disk`
    directories: Vec<PathBuf>,
}

/// Serves disks until its standard input ends.
pub fn serve(arguments: &Arguments) -> Outcome {
    let count = arguments.directories.len();
    let disks = (0..count).map(|_| VolatileDisk::new(arguments.length, arguments.sector)).collect();
    let power = Arc::new(Mutex::new(Power { disks, armed: None, lost: None }));
    let options =
        MountOptions { default_permissions: false, threads: 4, uring: Uring::Off, ..MountOptions::default() };
    let mut mounts = Vec::new();
    for (number, directory) in arguments.directories.iter().enumerate() {
        let file = Arc::new(Shared { power: Arc::clone(&power), number });
        mounts.push(mount_single(directory, file, options.clone()).map_err(Failure::new)?);
    }
    let mut output = std::io::stdout().lock();
    let mut say = |text: &str| writeln!(output, "{text}").and_then(|()| output.flush());
    say("ready").map_err(Failure::at("standard output"))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(Failure::at("standard input"))?;
        let answer = obey(&mut power.lock(), &line).unwrap_or_else(|| format!("not understood: {line}"));
        say(&answer).map_err(Failure::at("standard output"))?;
    }
    Ok(())
}

fn obey(power: &mut Power, line: &str) -> Option<String> {
    let mut words = line.split(' ');
    let order = words.next()?;
    let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let disks = |numbers: &[u64]| -> Option<Vec<usize>> {
        numbers.iter().map(|number| Some(*number as usize).filter(|it| *it < power.disks.len())).collect()
    };
    let draw = |numbers: &[u64]| {
        let [seed, dropped, torn, ref rest @ ..] = *numbers else { return None };
        let odds = Odds { dropped: u32::try_from(dropped).ok()?, torn: u32::try_from(torn).ok()? };
        Some(Draw { seed, odds, disks: disks(rest)? })
    };
    match order {
        "lose" => {
            let draw = draw(&numbers)?;
            let Loss { at_ns, writes: Losses { dropped, torn, kept } } = power.lose(&draw);
            Some(format!("{at_ns} {dropped} {torn} {kept}"))
        }
        "arm" => {
            let (writes, rest) = numbers.split_first()?;
            power.armed = Some(Armed { writes: *writes, draw: draw(rest)? });
            Some("done".to_owned())
        }
        "gain" => {
            let disks = disks(&numbers)?;
            power.gain(&disks);
            Some("done".to_owned())
        }
        "lie" => {
            disks(&numbers)?.into_iter().for_each(|number| power.disks[number].set_lying(true));
            Some("done".to_owned())
        }
        _ => None,
    }
}

/// What a loss of power was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// When, on the clock of [`now_ns`].
    pub at_ns: u64,
    /// What became of the writes that were not flushed.
    pub writes: Losses,
}

/// The process that serves disks, as its user sees it. Dropping it takes the disks away.
#[derive(Debug)]
pub struct Disks {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    directories: Vec<PathBuf>,
}

impl Disks {
    /// Starts `program` (this one) to serve a disk in each of `directories`, which exist and are empty.
    pub fn start(program: &Path, length: u64, sector: u64, directories: &[PathBuf]) -> Outcome<Disks> {
        let mut command = Command::new(program);
        command.args(["disks", "--length", &length.to_string(), "--sector", &sector.to_string()]);
        command.args(directories).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::at(program.display()))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output was asked for"));
        let mut disks = Disks { child, input, output, directories: directories.to_vec() };
        match disks.heard()?.as_str() {
            "ready" => Ok(disks),
            other => Err(Failure::new(format!("the disks did not start: {other:?}"))),
        }
    }

    /// The file that is a disk.
    pub fn file(&self, disk: usize) -> PathBuf {
        self.directories[disk].join(SINGLE_NAME)
    }

    /// Power goes, for all of `disks` at one moment, unless it has gone already: then this says how that was.
    pub fn lose_power(&mut self, disks: &[usize], seed: u64, odds: Odds) -> Outcome<Loss> {
        let answer = self.ask(&format!("lose {seed} {} {}", odds.dropped, odds.torn), disks)?;
        let numbers: Vec<u64> = answer.split(' ').filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [at_ns, dropped, torn, kept] => Ok(Loss { at_ns, writes: Losses { dropped, torn, kept } }),
            _ => Err(Failure::new(format!("the disks said {answer:?}"))),
        }
    }

    /// Power will go when so many further writes have come: in the middle of what the kernel writes together.
    pub fn arm(&mut self, disks: &[usize], writes: u64, seed: u64, odds: Odds) -> Outcome {
        let order = format!("arm {writes} {seed} {} {}", odds.dropped, odds.torn);
        self.ask(&order, disks).map(drop)
    }

    /// Power is back.
    pub fn gain_power(&mut self, disks: &[usize]) -> Outcome {
        self.ask("gain", disks).map(drop)
    }

    /// From here on flushes of `disks` are answered and not done.
    pub fn lie(&mut self, disks: &[usize]) -> Outcome {
        self.ask("lie", disks).map(drop)
    }

    fn ask(&mut self, order: &str, disks: &[usize]) -> Outcome<String> {
        let disks: String = disks.iter().map(|disk| format!(" {disk}")).collect();
        let input = self.input.as_mut().expect("there until it is dropped");
        writeln!(input, "{order}{disks}").map_err(Failure::at("the process of the disks"))?;
        let answer = self.heard()?;
        if answer.starts_with("not understood") { Err(Failure::new(answer)) } else { Ok(answer) }
    }

    fn heard(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(Failure::at("the process of the disks"))?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Disks {
    #[allow(clippy::disallowed_methods, reason = "it was killed just before")]
    fn drop(&mut self) {
        drop(self.input.take());
        // It ends with its input; how is of no interest any more.
        let _ = self.child.wait();
    }
}
