//! The bytes of the protocol: vectors made by hand, and input that is damaged.

mod fuzz;
mod vectors;
