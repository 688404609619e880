//! Messages as the rest of the program has them: [`convert`] between messages and the types of the model, [`members`]
//! for the records of placement groups, [`measures`] for what nodes measure of themselves.

mod convert;
pub mod measures;
pub mod members;
