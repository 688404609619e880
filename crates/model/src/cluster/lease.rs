//! Leases between members of a placement group: until when the one that asked may serve, and until when the one that
//! granted has to wait before it acknowledges anything without the other.
//!
//! It reads no clock: every moment is an argument. What makes it safe (Gray and Cheriton, *Leases*, 1989, section 3):
//!
//! - The asker counts from before its question left, the granter from after the question came: in true time the lease
//!   of the asker begins first.
//! - Clocks run on in suspension, and at rates within [`DRIFT_PERCENT`] of true time. The asker takes that off the
//!   term, the granter adds it: in true time the first is at most [`TERM_NS`], the second at least that.
//! - A virtual machine that stood still may have a steady clock that stood still with it. Its wall clock is put right
//!   when it runs again, so the asker counts the larger of what has passed on the two. One that is set forward for
//!   another reason ends the lease too soon, and the next answer, half a second later, begins a new one; one that is
//!   set back changes nothing.

/// What a grant is for, in true time: long enough that three questions of four may be lost, and the pause in which a
/// group waits for a member that it cannot reach.
pub const TERM_NS: u64 = 2_000_000_000;

/// How much faster or slower than true time a steady clock may run. Quartz is a hundred times better; NTP moves
/// it by 0.05% at most (adjtimex(2)).
pub const DRIFT_PERCENT: u64 = 1;

/// For how long the asker believes in a grant, on its own clock.
const ASKER_NS: u64 = TERM_NS / 100 * (100 - DRIFT_PERCENT);

/// For how long the granter waits, on its own clock. One more: a reading is cut to whole nanoseconds.
const GRANTER_NS: u64 = TERM_NS / 100 * (100 + DRIFT_PERCENT) + 1;

/// A moment on both clocks of one machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moment {
    /// On the clock that counts suspension and cannot be set.
    pub steady_ns: u64,
    /// On the clock that shows the date.
    pub wall_ns: u64,
}

/// What a member holds of another: a promise that the other acknowledges nothing without it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lease {
    asked: Option<Moment>,
}

impl Lease {
    /// A question that was sent at `asked`, read before it left, was answered with a grant. Answers may come in any
    /// order.
    pub fn granted(&mut self, asked: Moment) {
        if self.asked.is_none_or(|earlier| earlier.steady_ns < asked.steady_ns) {
            self.asked = Some(asked);
        }
    }

    /// True when it has not ended. It has to be asked again before each answer: a thread may be paused in between.
    pub fn is_held(&self, now: Moment) -> bool {
        self.asked.is_some_and(|asked| {
            let steady_ns = now.steady_ns.saturating_sub(asked.steady_ns);
            steady_ns.max(now.wall_ns.saturating_sub(asked.wall_ns)) < ASKER_NS
        })
    }
}

/// What a member has promised to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Grant {
    end_ns: u64,
}

impl Grant {
    /// Grants anew; `now_ns`: the granter's steady clock, read after the question came, the grant kept before the
    /// answer leaves. A process that starts grants to all of its groups' members: what the process before it granted is
    /// not known.
    pub fn give(&mut self, now_ns: u64) {
        self.end_ns = self.end_ns.max(now_ns.saturating_add(GRANTER_NS));
    }

    /// True when the other one's lease has surely ended.
    pub fn has_ended(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns
    }

    /// When it ends, on the granter's steady clock; for the one that waits for it.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A clock whose rate is constant: in units of 1/10,000 of true time.
    #[derive(Clone, Copy, Debug)]
    struct Drifting {
        rate: u64,
        zero_ns: u64,
    }

    impl Drifting {
        fn at(self, true_ns: u64) -> u64 {
            self.zero_ns + (u128::from(true_ns) * u128::from(self.rate) / 10_000) as u64
        }
    }

    fn drifting() -> impl Strategy<Value = Drifting> {
        // The ends of what is allowed are where a wrong rule fails.
        let rate = prop_oneof![Just(9_900u64), Just(10_100), 9_900u64..=10_100];
        (rate, 0u64..10_000_000_000).prop_map(|(rate, zero_ns)| Drifting { rate, zero_ns })
    }

    fn moment(steady_ns: u64, wall_ns: u64) -> Moment {
        Moment { steady_ns, wall_ns }
    }

    proptest! {
        #[test]
        fn the_asker_never_holds_what_the_granter_takes_for_ended(
            asker in drifting(),
            granter in drifting(),
            asked_ns in 0u64..1_000_000_000_000,
            took_ns in prop_oneof![Just(0u64), 0u64..3_000_000_000],
            later_ns in prop_oneof![1_999_999_990u64..2_000_000_010, 0u64..5_000_000_000],
            // Where the wall clock of the asker is set to meanwhile.
            wall_ns in any::<u64>(),
        ) {
            let (mut lease, mut grant) = (Lease::default(), Grant::default());
            grant.give(granter.at(asked_ns + took_ns));
            lease.granted(moment(asker.at(asked_ns), 0));
            let now_ns = asked_ns + later_ns;
            if lease.is_held(moment(asker.at(now_ns), wall_ns)) || lease.is_held(moment(asker.at(now_ns), 0)) {
                prop_assert!(!grant.has_ended(granter.at(now_ns)));
            }
        }

        #[test]
        fn a_machine_that_stood_still_holds_nothing_that_ended_meanwhile(
            granter in drifting(),
            ran_ns in 0u64..2_500_000_000,
            still_ns in 0u64..10_000_000_000,
        ) {
            let (mut lease, mut grant) = (Lease::default(), Grant::default());
            grant.give(granter.at(0));
            lease.granted(moment(0, 0));
            // The steady clock knows nothing of the pause, the wall clock was put right.
            if lease.is_held(moment(ran_ns, ran_ns + still_ns)) {
                prop_assert!(!grant.has_ended(granter.at(ran_ns + still_ns)));
            }
        }
    }

    #[test]
    fn a_lease_is_held_for_most_of_its_term_and_answers_come_in_any_order() {
        let mut lease = Lease::default();
        assert!(!lease.is_held(moment(0, 0)), "nothing was granted");
        lease.granted(moment(1_000, 0));
        lease.granted(moment(500, 0));
        assert!(lease.is_held(moment(1_000 + ASKER_NS - 1, 0)));
        assert!(!lease.is_held(moment(1_000 + ASKER_NS, 0)));
    }

    #[test]
    fn a_wall_clock_that_is_set_back_ends_nothing_and_one_set_forward_costs_one_question() {
        let mut lease = Lease::default();
        lease.granted(moment(0, 3_600_000_000_000));
        assert!(lease.is_held(moment(1_000_000_000, 0)));
        assert!(!lease.is_held(moment(1_000_000_000, 7_200_000_000_000)));
        lease.granted(moment(1_000_000_000, 7_200_000_000_000));
        assert!(lease.is_held(moment(1_100_000_000, 7_200_100_000_000)));
    }

    #[test]
    fn a_later_grant_is_never_shortened() {
        let mut grant = Grant::default();
        assert!(grant.has_ended(0), "nothing was granted");
        grant.give(1_000);
        let end_ns = grant.end_ns();
        grant.give(0);
        assert_eq!(grant.end_ns(), end_ns);
        assert!(!grant.has_ended(end_ns - 1) && grant.has_ended(end_ns));
    }
}
