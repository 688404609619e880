//! Messages as the rest of the program has them: [`convert`] between messages and the types of the model, [`measures`]
//! for what nodes measure of themselves.

mod convert;
pub mod measures;
