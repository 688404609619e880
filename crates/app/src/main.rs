//! The vazao command.

fn main() {}
