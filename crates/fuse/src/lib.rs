//! The FUSE door: translates the kernel's requests into client calls, decides nothing.
