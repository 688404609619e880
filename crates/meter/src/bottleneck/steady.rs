//! Hysteresis for a live display: a verdict changes when the new one has proved itself, not at every flicker.

use super::verdict::{Resource, Verdict};

/// A different verdict is taken over at once when it is this much surer.
const CLEARLY_SURER: f64 = 0.25;

/// Otherwise when it has come this often in a row.
const TIMES_IN_A_ROW: u32 = 2;

/// The verdict shown.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Steady {
    shown: Option<Verdict>,
    challenger: Option<(Resource, String)>,
    times: u32,
}

impl Steady {
    /// Takes the verdict of the latest stretch of time and returns the one to show.
    pub fn take(&mut self, latest: Verdict) -> Verdict {
        let key = (latest.resource, latest.place.clone());
        let Some(shown) = &self.shown else { return self.show(latest) };
        if (shown.resource, &shown.place) == (key.0, &key.1) {
            return self.show(latest);
        }
        self.times = if self.challenger.as_ref() == Some(&key) { self.times + 1 } else { 1 };
        self.challenger = Some(key);
        let was_nothing = matches!(shown.resource, Resource::Unknown | Resource::Idle | Resource::Caller);
        // A silence is no estimate that flickers: it is there, or it is over.
        let is_silence = [shown.resource, latest.resource].contains(&Resource::NoAnswer);
        if was_nothing
            || is_silence
            || self.times >= TIMES_IN_A_ROW
            || latest.score > shown.score + CLEARLY_SURER
        {
            return self.show(latest);
        }
        shown.clone()
    }

    fn show(&mut self, verdict: Verdict) -> Verdict {
        self.challenger = None;
        self.times = 0;
        self.shown = Some(verdict.clone());
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(resource: Resource, score: f64) -> Verdict {
        Verdict { resource, score, place: "data1".to_owned(), ..Verdict::default() }
    }

    #[test]
    fn one_flicker_changes_nothing_and_the_second_in_a_row_does() {
        let mut steady = Steady::default();
        steady.take(verdict(Resource::Disk, 0.8));
        assert_eq!(steady.take(verdict(Resource::Cpu, 0.9)).resource, Resource::Disk);
        assert_eq!(steady.take(verdict(Resource::Disk, 0.8)).resource, Resource::Disk);
        assert_eq!(steady.take(verdict(Resource::Cpu, 0.9)).resource, Resource::Disk);
        assert_eq!(steady.take(verdict(Resource::Cpu, 0.9)).resource, Resource::Cpu);
    }

    #[test]
    fn what_is_much_surer_is_shown_at_once_and_nothing_gives_way_to_anything() {
        let mut steady = Steady::default();
        steady.take(verdict(Resource::Disk, 0.55));
        assert_eq!(steady.take(verdict(Resource::Network, 0.95)).resource, Resource::Network);
        steady.take(verdict(Resource::NoAnswer, 0.6));
        assert_eq!(steady.take(verdict(Resource::Idle, 0.0)).resource, Resource::Idle, "it answers again");
        let mut idle = Steady::default();
        idle.take(verdict(Resource::Idle, 0.9));
        assert_eq!(idle.take(verdict(Resource::Disk, 0.6)).resource, Resource::Disk);
    }
}
