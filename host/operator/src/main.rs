//! Parses the command line and calls the application.

fn main() {}
