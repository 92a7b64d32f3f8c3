//! What the built binary shows at `/metrics` of Proxies that come and go: a fleet that is made anew each day must not
//! leave a day's names there.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::api::{DeleteParams, ListParams};

use super::processes::external;
use super::replica::{Answering, Replica};
use crate::operator::Bench;

const FLEET: usize = 100;
/// On a machine that is busy with other tests.
const SOON: Duration = Duration::from_mins(1);
/// Longer than an interval between probes and than a probe may take: whatever was under way has ended.
const A_PROBE_LATER: Duration = Duration::from_secs(4);

/// Names of the namespace's Proxies that series have.
fn named(scrape: &str, namespace: &str) -> BTreeSet<String> {
    let begins = format!("proxy=\"{namespace}/");
    let name = |rest: &str| rest.split('"').next().map(str::to_owned);
    scrape.split(begins.as_str()).skip(1).filter_map(name).collect()
}

async fn scrape(replica: &Replica) -> String {
    replica.until("it answers a scrape", SOON, async || replica.scrape().await).await
}

#[tokio::test]
async fn series_of_a_hundred_proxies_go_with_them() {
    let Some(bench) = Bench::open("series").await else { return };
    let far_end = Answering::start().await;
    let replica = Replica::start(&bench, "series").await;
    replica.ready().await;
    let names: BTreeSet<String> = (0..FLEET).map(|i| format!("p{i:03}")).collect();
    for name in &names {
        bench.create(name, external(far_end.port)).await;
    }
    let all = async || {
        let text = replica.scrape().await?;
        (named(&text, &bench.namespace) == names).then_some(())
    };
    replica.until("each Proxy has series", SOON, all).await;

    bench.proxies().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    for name in &names {
        bench.until_gone(name).await;
    }
    tokio::time::sleep(A_PROBE_LATER).await;
    let after = scrape(&replica).await;
    assert_eq!(named(&after, &bench.namespace), BTreeSet::new(), "names of Proxies that are gone");
    for name in &names {
        assert!(!after.contains(&format!("{name}\"")), "{name} is still in: {after}");
    }
    let total = |line: &&str| line.starts_with("proxy_operator_proxies{") && !line.ends_with(" 0");
    assert_eq!(after.lines().find(total), None, "no phase has a Proxy");
}
