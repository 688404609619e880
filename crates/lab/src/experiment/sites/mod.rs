//! C1 and C2: IOzone's four operations by two clients at once, in one network and over two sites ("Análise Comparativa
//! entre Soluções Livres para Construção de Sistemas de Arquivos Distribuídos", Azevedo Filho and Macedo).
//!
//! Each client has a mount and a process that works on it. A file is written, written over, read and read again; before
//! reading, mounts are made anew, as with IOzone's `-U`, so that the bytes come from the servers. All parts of the time
//! are kept, so that one run gives IOzone's own time (the calls alone), and the whole one with open, fsync and close.

mod c1;
mod c2;
mod far;
mod fio;
mod installed;
mod limit;
mod peer;
mod samples;
mod stat;
mod system;
pub mod worker;
mod workers;

pub(super) use c1::C1;
pub(super) use c2::C2;

use crate::experiment::{Lab, Scale};
use crate::hosts::{BitsPerSecond, TCP_PAYLOAD_SHARE};
use crate::report::size::{KIB, MB, MIB, format_size};

/// Every port of the study.
const PORT: BitsPerSecond = BitsPerSecond(100_000_000);
const CLIENTS: usize = 2;
/// Linux's own since 2.6.19, with which TCP fills a line's queue until it overflows. Otherwise the machine's setting
/// would be part of the result.
const CONGESTION_CONTROL: &str = "cubic";
/// Bytes of a call, but where calls of different sizes are compared.
const RECORD_BYTES: u64 = 64 * KIB;

/// Megabytes a second of payload that a link carries.
fn carried_mb_per_s(rate: BitsPerSecond) -> f64 {
    rate.0 as f64 / 8.0 * TCP_PAYLOAD_SHARE / MB
}

/// Samples of each place: the study has 25.
fn repetitions(lab: &Lab) -> u32 {
    lab.repeat.unwrap_or(match lab.scale {
        Scale::Tiny => 1,
        Scale::Short => 3,
        Scale::Full => 25,
    })
}

/// Sizes of files, in MiB when not tiny.
fn sizes(lab: &Lab, short: &[u64], full: &[u64]) -> Vec<u64> {
    let mebibytes = lab.scaled(short, full);
    mebibytes.iter().map(|&size| lab.bytes(size * MIB, size * MIB)).collect()
}

/// The largest of the sizes.
fn largest(sizes: &[u64]) -> u64 {
    sizes.iter().copied().max().unwrap_or(RECORD_BYTES)
}

/// Sizes of calls, which are compared with files of one size.
fn records(lab: &Lab) -> Vec<u64> {
    lab.scaled(
        vec![4 * KIB, RECORD_BYTES, MIB],
        vec![4 * KIB, 16 * KIB, RECORD_BYTES, 256 * KIB, MIB, 4 * MIB, 16 * MIB],
    )
}

/// How much is done, in words.
fn scale(lab: &Lab, sizes: &[u64]) -> String {
    let sizes: Vec<String> = sizes.iter().map(|&bytes| format_size(bytes)).collect();
    format!(
        "files of {}, calls of {}, samples of each client: {}",
        sizes.join(", "),
        format_size(RECORD_BYTES),
        repetitions(lab)
    )
}

/// What holds for both scenarios.
fn setup() -> Vec<String> {
    vec![
        format!(
            "Every port is of {} Mb/s, which carry {:.2} MB/s of TCP's payload. Both clients work at once: each operation \
             begins on both together.",
            PORT.0 / 1_000_000,
            carried_mb_per_s(PORT)
        ),
        format!("TCP's congestion control is {CONGESTION_CONTROL} on all hosts, whatever this machine's is."),
        "As IOzone does them: write makes a file, rewrite writes over it, read and reread go through it, all in order and \
         by one thread on a mount. The time is that of open, calls, fsync (of writes) and close; \"calls alone\" is \
         IOzone's without -e and -c."
            .to_owned(),
        "Mounts are made anew before read and before reread, so that bytes come from the servers (IOzone's -U). Reread \
         from the client's own memory, which IOzone measures without -U, is in a figure of its own."
            .to_owned(),
        "What is read is compared with what was written, within the time.".to_owned(),
        "Where fio is installed it takes turns with our own load on one file of each client, at the largest size: \
         sequential calls from open to fsync, new mounts before reading. It compares nothing. Each fio prepares itself after \
         it was started, so that the two begin only nearly together."
            .to_owned(),
    ]
}
