//! Tests of the service: what every operation promises, over both engines.

mod harness;
mod namespace;
