//! A number of threads that prepare, start together, and are timed from the first start to the last end.

use std::io;
use std::sync::Barrier;
use vazao_meter::Clock;
use vazao_sampler::{Record, Recorder};

/// What the threads of one run did.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Timed {
    /// From the first start to the last end.
    pub seconds: f64,
    /// Sum of what the threads counted: bytes, files.
    pub done: u64,
    /// The failures, one a thread at most.
    pub errors: Vec<String>,
}

struct Finished {
    start_ns: u64,
    end_ns: u64,
    done: u64,
    error: Option<String>,
    cpu_s: f64,
}

fn thread_cpu_s() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// Runs `work` on each of `threads` threads, given its index, what `prepare` made for it before the time began, and
/// its count of things done, which stays valid when it fails.
pub fn run<S>(
    threads: usize,
    clock: &dyn Clock,
    recorder: &Recorder,
    prepare: impl Fn(usize) -> S + Sync,
    work: impl Fn(usize, &mut S, &mut u64) -> io::Result<()> + Sync,
) -> (Timed, Record) {
    let gate = Barrier::new(threads + 1);
    let thread = |index: usize| {
        let mut state = prepare(index);
        gate.wait(); // ready
        gate.wait(); // go
        let (start_ns, cpu_s) = (clock.now_ns(), thread_cpu_s());
        let mut done = 0;
        let error = work(index, &mut state, &mut done).err().map(|error| error.to_string());
        Finished { start_ns, end_ns: clock.now_ns(), done, error, cpu_s: thread_cpu_s() - cpu_s }
    };
    let (finished, mut record) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|index| scope.spawn(move || thread(index))).collect();
        gate.wait();
        recorder.during(|| {
            gate.wait();
            workers.into_iter().map(|worker| worker.join().ok()).collect::<Vec<_>>()
        })
    });
    // The recorder sees only threads that live to its end; these have ended.
    let busiest_s = finished.iter().flatten().map(|f| f.cpu_s).fold(0.0, f64::max);
    if let Some(client) = record.processes.first_mut() {
        client.busiest_thread_s = client.busiest_thread_s.max(busiest_s);
    }
    (total(finished), record)
}

fn total(finished: Vec<Option<Finished>>) -> Timed {
    let panics = finished.iter().filter(|f| f.is_none()).map(|_| "a thread panicked".to_owned());
    let panics: Vec<String> = panics.collect();
    let ended: Vec<Finished> = finished.into_iter().flatten().collect();
    let start_ns = ended.iter().map(|f| f.start_ns).min().unwrap_or(0);
    let end_ns = ended.iter().map(|f| f.end_ns).max().unwrap_or(0);
    Timed {
        seconds: end_ns.saturating_sub(start_ns) as f64 / 1e9,
        done: ended.iter().map(|f| f.done).sum(),
        errors: ended.into_iter().filter_map(|f| f.error).chain(panics).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn recorder() -> Recorder {
        Recorder::new(vazao_meter::clock::system(), Vec::new())
    }

    #[test]
    fn time_runs_from_the_first_start_to_the_last_end_without_the_preparation() {
        let clock = vazao_meter::clock::system();
        let prepare = |_| clock.sleep(Duration::from_millis(400));
        let work = |index: usize, (): &mut (), done: &mut u64| {
            clock.sleep(Duration::from_millis(20 * (index as u64 + 1)));
            *done += index as u64;
            Ok(())
        };
        let (timed, record) = run(3, &*clock, &recorder(), prepare, work);
        assert!(timed.seconds >= 0.06 && timed.seconds < 0.4, "{timed:?}");
        assert_eq!((timed.done, timed.errors.len(), record.processes.len()), (3, 0, 1));
    }

    #[test]
    fn what_was_done_before_a_failure_counts_and_the_failure_is_told() {
        let clock = vazao_meter::clock::system();
        let work = |index: usize, (): &mut (), done: &mut u64| {
            *done += 10;
            if index == 1 { Err(io::Error::other("disk on fire")) } else { Ok(()) }
        };
        let (timed, _) = run(2, &*clock, &recorder(), |_| (), work);
        assert_eq!((timed.done, timed.errors), (20, vec!["disk on fire".to_owned()]));
    }
}
