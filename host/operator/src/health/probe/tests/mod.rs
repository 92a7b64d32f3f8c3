//! Probes against fake proxies on loopback: real sockets, real TLS, scripted misbehaviour.

mod fakes;
mod plain;
mod reach;
mod tunnel;
mod tunnel_tls;
