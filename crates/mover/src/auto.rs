//! The choice of the method.

use crate::method::Method;

/// What was chosen, and why.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chosen {
    /// The method.
    pub method: Method,
    /// For people.
    pub why: String,
}
