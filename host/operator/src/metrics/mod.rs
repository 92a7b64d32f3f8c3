//! What `/metrics` shows. Each loop owns a small recorder trait; [`Metrics`] implements all of them, and
//! nothing but `app` knows this room.
//!
//! Names, labels and help stand once, in [`families`]; `docs/metrics.md` is generated from there. Labels
//! are bounded: providers by the config, everything else by enums; series with a `proxy` label go with the
//! proxy. Gauges that count objects are read at scrape time (`scrape`): what is incremented drifts. `recorders`
//! and `gc` are fed, `per_proxy` holds the series that each proxy has.

mod families;
mod gc;
mod per_proxy;
mod recorders;
mod scrape;
mod table;
#[cfg(test)]
mod tests;

pub use recorders::{Metrics, PerProxy};
pub use scrape::{ProviderSeries, ScrapeSources};
pub use table::markdown;
