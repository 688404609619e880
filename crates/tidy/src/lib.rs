//! The house rules, checked with the tests.
