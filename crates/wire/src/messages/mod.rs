//! Messages as the rest of the program has them: [`convert`] between messages and the types of the model, [`members`]
//! for the records of placement groups, [`lagging`] for how far their members lag, [`measures`] for what nodes measure
//! of themselves.

mod convert;
mod lagging;
pub mod measures;
pub mod members;
