//! The metadata service: every operation one transaction over an ordered key-value engine.
