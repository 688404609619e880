//! Tests of the service: what every operation promises, over both engines.

mod contents;
mod conversions;
mod crash;
mod directories;
mod full;
mod harness;
mod members;
mod model;
mod namespace;
mod orphans;
mod repetition;
mod strays;
mod threads;
