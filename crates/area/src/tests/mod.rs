//! The service through its messages.
