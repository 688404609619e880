//! The published experiments, rerun: one file each, over one form of outcome, one plotter and one page.
//!
//! An experiment arranges its machines (hosts, links and disks of chosen rates), has other processes of this program
//! put load on them, records every repetition, and says of each shape that its paper shows whether this run shows it
//! too. It compares shapes, never absolute figures of other people's hardware.

pub mod chart;
mod definition;
mod lab;
pub mod outcome;
mod page;
mod registry;
mod run;
pub mod sites;
pub mod testbed;

mod calling;
pub mod calls;
mod copies;
mod g1;
mod g10;
mod g11;
mod g12;
mod g13;
mod g14;
mod g15;
mod g2;
mod g4;
mod g5;
mod g6;
mod g7;
mod g9;
mod l1;
mod l2;
mod p1;
mod p10;
mod p2;
mod p3;
mod p4;
mod p5;
mod p6;
mod p7;
mod p8;
mod p9;
mod psplits;
mod r1;
mod raid;
mod reading;
mod reading_kept;
mod w1;
mod w2;

pub use definition::{About, Experiment, Measured};
pub use lab::{Lab, Scale};
pub(crate) use outcome::{figure, shown};
pub use page::report;
pub use registry::{find, registry};
pub use run::{Args, ListArgs, list, run};
pub(crate) use run::{clear_away, sweep};
