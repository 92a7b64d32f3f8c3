//! The discovery and lease API as clients meet it: the real router over the real store, in this process;
//! over loopback where the connection itself matters. Only the time and the Proxies are the tests'.

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod described;
#[cfg(test)]
mod description;
#[cfg(test)]
mod discovery;
#[cfg(test)]
mod documented;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod reports;
#[cfg(test)]
mod server;
#[cfg(test)]
mod standby;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod world;
