//! G12: open channels beyond the server's file descriptors, up to the configured number (section 4.2 of GridFS).

use super::outcome::{Figure, Finding, Form};
use super::testbed::{Plan, Testbed};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::report::size::MIB;
use std::fs;
use vazao_client::area::{AreaClient, Channel, ChannelOptions};
use vazao_model::Code;
use vazao_sampler::Recorder;

/// Channels without end.
pub(super) struct G12;

/// What the server may have open.
const DESCRIPTORS: u64 = 1024;
const FILES: u64 = 2000;
const CHANNELS: &str = "open channels";

impl Experiment for G12 {
    fn about(&self) -> About {
        About {
            id: "G12",
            title: "Open channels beyond the server's descriptors, up to the configured number",
            source: "GridFS, section 4.2",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let most: usize = lab.scaled(20_000, 100_000);
        let steps: Vec<usize> = [100, 10, 4, 2, 1].iter().map(|divisor| most / divisor).collect();
        let plan = Plan {
            data_servers: 1,
            clients: 1,
            areas: true,
            channels_max: Some(most),
            descriptors: Some(DESCRIPTORS),
            ..Plan::default()
        };
        let bed = Testbed::new(lab, &plan)?;
        let x: Vec<String> = steps.iter().map(usize::to_string).collect();
        let axis = || (CHANNELS, x.clone());
        let mut memory = Figure::new("memory", "Memory of the server", axis(), "MiB resident", Form::Lines);
        let mut files =
            Figure::new("descriptors", "Files that the server has open", axis(), "descriptors", Form::Lines);
        let mut reads = Figure::new(
            "reads",
            "Reads of 16 bytes through channels in turn",
            axis(),
            "reads/s",
            Form::Lines,
        );
        let mut refused = Figure::new(
            "refused",
            "Channels opened beyond the configured number, and how many were refused with its name",
            (CHANNELS, vec!["one more".to_owned()]),
            "channels",
            Form::Bars,
        );
        let recorder = Recorder::new(lab.clock.clone(), bed.watched());
        let server = bed.process("data1")?;
        make_files(&bed)?;
        bed.with_client(0, |client| {
            let area = client.area("data1", "disk");
            let mut open: Vec<Channel> = Vec::new();
            for (at, &step) in steps.iter().enumerate() {
                while open.len() < step {
                    open.push(area.open(name(open.len()).as_bytes(), &ChannelOptions::default())?);
                }
                let (seconds, record) = recorder.during(|| read_all(lab, &open));
                reads.series_mut("one reader").record(at, read_count(&open) as f64 / seconds?);
                let process = record.processes.iter().find(|process| process.name == "data1");
                memory
                    .series_mut("data server")
                    .record(at, process.map_or(0, |p| p.resident_bytes) as f64 / MIB as f64);
                files.series_mut("data server").record(at, descriptors_of(server) as f64);
            }
            let one_more = is_refused(&area);
            refused.series_mut("opened").record(0, 1.0);
            refused.series_mut("refused").record(0, f64::from(u8::from(one_more)));
            Ok(())
        })?;
        Ok(Measured {
            scale: format!("up to {most} channels, once"),
            setup: vec![format!(
                "One server with an area of {FILES} files, channels_max {most}, and at most {DESCRIPTORS} open files (RLIMIT_NOFILE)."
            )],
            figures: vec![memory, files, reads, refused],
            gaps: Vec::new(),
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let best = |key: &str, series: &str| figure(figures, key)?.find(series)?.best();
        let last = |key: &str| {
            let figure = figure(figures, key)?;
            figure.series.first()?.median(figure.x.len().checked_sub(1)?)
        };
        let (files, reads) = (best("descriptors", "data server"), last("reads"));
        let refused = best("refused", "refused");
        vec![
            Finding::new(
                "Channels beyond the descriptors work: these are cached, not held",
                files.zip(reads).map(|(files, reads)| files <= DESCRIPTORS as f64 && reads > 0.0),
                format!(
                    "at most {} descriptors; {} reads/s with all channels open",
                    shown(files),
                    shown(reads)
                ),
            ),
            Finding::new(
                "The configured number is obeyed with a clear error",
                refused.map(|refused| refused == 1.0),
                "one more than the number was refused, by an error that names the setting, if this is yes"
                    .to_owned(),
            ),
        ]
    }
}

fn name(channel: usize) -> String {
    format!("file{}", channel as u64 % FILES)
}

/// Each file says which one it is.
fn contents(number: u64) -> String {
    format!("{number:016}")
}

fn make_files(bed: &Testbed<'_>) -> Result<(), Error> {
    let Some(disk) = bed.server_disks().first() else { return Ok(()) };
    (0..FILES).try_for_each(|number| {
        let path = disk.join(name(number as usize));
        fs::write(&path, contents(number)).map_err(Error::at(path.display()))
    })
}

/// No more reads than these a step: each is a round trip.
const READS_MAX: usize = 5_000;

fn read_count(open: &[Channel]) -> usize {
    open.len().min(READS_MAX)
}

/// Reads through channels spread over all, in turn, compares, and returns the seconds.
fn read_all(lab: &Lab, open: &[Channel]) -> vazao_client::Result<f64> {
    let start_ns = lab.clock.now_ns();
    let step = open.len().div_ceil(READS_MAX).max(1);
    let mut buffer = [0; 16];
    for count in 0..read_count(open) {
        let index = count * step % open.len();
        let length = open[index].read_at(&mut buffer, 0)?;
        if buffer[..length] != *contents(index as u64 % FILES).as_bytes() {
            let text = format!("channel {index} read another file's bytes");
            return Err(vazao_client::Error::new(Code::Corrupt, text));
        }
    }
    Ok(lab.clock.now_ns().saturating_sub(start_ns) as f64 / 1e9)
}

fn is_refused(area: &AreaClient) -> bool {
    let opened = area.open(name(0).as_bytes(), &ChannelOptions::default());
    opened.is_err_and(|error| error.code == Code::InUse && error.to_string().contains("channels_max"))
}

fn descriptors_of(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count)
}
