//! The discovery and lease API as clients meet it: the real router over the real store, in this process;
//! over loopback where the connection itself matters. Only the time and the Proxies are the tests'.

#![cfg(test)]

mod bad_input;
mod described;
mod description;
mod discovery;
mod documented;
mod faults;
mod leases;
mod reports;
mod server;
mod standby;
mod tokens;
mod world;
