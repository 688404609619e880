//! What an experiment is: what it asks, what it measures, and what it judges.

use super::lab::Lab;
use super::outcome::{Figure, Finding};
use crate::Error;

/// What an experiment is called and asks.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its id in the list of experiments, such as `P4`.
    pub id: &'static str,
    /// What it asks, in one line.
    pub title: &'static str,
    /// The paper's table or figure.
    pub source: &'static str,
    /// What it takes beyond this program, in words: root, packages.
    pub needs: &'static str,
}

/// A published experiment.
pub trait Experiment: Sync {
    /// What it is.
    fn about(&self) -> About;
    /// Measures. An error ends it; what a part could not do is a gap.
    fn measure(&self, lab: &Lab) -> Result<Measured, Error>;
    /// The shapes of the paper, judged on what was measured. Never measures.
    fn findings(&self, figures: &[Figure]) -> Vec<Finding>;
}

/// What an experiment brings back; the rest of an outcome is the same for all.
#[derive(Clone, Default, Debug)]
pub struct Measured {
    /// How much was done, in words.
    pub scale: String,
    /// What was arranged.
    pub setup: Vec<String>,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// What could not be done, and why.
    pub gaps: Vec<String>,
}

impl Measured {
    /// Two parts of one experiment together.
    pub(super) fn and(mut self, other: Measured) -> Measured {
        self.setup.extend(other.setup);
        self.figures.extend(other.figures);
        self.gaps.extend(other.gaps);
        self.scale = format!("{}; {}", self.scale, other.scale);
        self
    }
}
