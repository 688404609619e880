//! The data server: checksummed objects on one or many target directories.
