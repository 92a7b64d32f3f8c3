//! The operator is stopped at every effect in a life in which people ask for more than a spec can say: another
//! machine while a client holds the first, and in the end that the machine be left behind.

use std::time::Duration;

use egress_proxies_core::crd::{ConditionType, Proxy};
use serde_json::json;

use crate::gate::Effect;
use crate::operator::{Access, World};
use crate::points::every_point;
use crate::provider::Component;
use crate::wiring::is_ready;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_stopped_at_any_effect_serves_each_request_of_a_person_once_and_leaves_what_it_shall() {
    let Some(access) = Access::open().await else { return };
    let needed = [Effect::Metadata, Effect::Status, Effect::Create, Effect::Get, Effect::Delete];
    every_point(&access, "effect points of a life with requests of people", &needed, life).await;
}

/// Created with a value of the replace annotation, replaced for another one after its lease, abandoned.
async fn life(world: &World) -> Result<(), String> {
    let replace = json!({"crawl.example.com/replace": "first"});
    let spec = json!({"mode": "Managed", "provider": "fake"});
    let uid = world.create_with("a", replace, spec).await.unwrap();
    let first = served(world, "first", 1).await?;
    world.clients.take(world, "a").await;
    world.replace("a", "second").await;
    world.until("a", |proxy| proxy.is_some_and(|it| says(it, "Draining"))).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    if world.cloud.machines().iter().any(|it| it.incarnation.as_ref().is_none_or(|it| it.as_str() != first)) {
        return Err(format!("it went under a lease: {:?}", world.cloud.machines()));
    }
    world.clients.end(&uid);
    let second = served(world, "second", 2).await?;
    world.put_provider(Component::Failed);
    world.delete("a").await;
    world.until("a", |proxy| proxy.is_some_and(|it| says(it, "ProviderUnavailable"))).await;
    world.abandon("a").await;
    world.until("a", |proxy| proxy.is_none()).await;
    // At once: whoever still has it in a cache, or wrote without an answer, has not heard of it yet.
    world.put_provider(Component::Ready);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let left = world.cloud.machines();
    let is_left = left.iter().all(|it| it.incarnation.as_ref().is_some_and(|it| it.as_str() == second));
    if left.len() != 1 || !is_left || world.cloud.landing() != 0 {
        return Err(format!("left behind: {left:?}, not {second} alone"));
    }
    world.check()
}

/// Ready with its one machine, the value taken up and nothing of it left to do; the machine.
async fn served(world: &World, value: &str, born: u64) -> Result<String, String> {
    let is_served = |proxy: &Proxy| {
        let status = proxy.status.as_ref();
        let settled = |it: &_| is_settled(it, value);
        is_ready(proxy) && status.is_some_and(settled)
    };
    let proxy = world.until("a", |proxy| proxy.is_some_and(is_served)).await.unwrap();
    let machine = proxy.status.and_then(|status| status.incarnation).unwrap_or_default();
    let machines = world.cloud.machines();
    let there: Vec<_> = machines.iter().filter_map(|it| it.incarnation.as_ref()).collect();
    if there.len() != 1 || there[0].as_str() != machine || world.cloud.born() != born {
        return Err(format!("{value}: {machine} of {there:?}, {} made, not {born}", world.cloud.born()));
    }
    world.check()?;
    Ok(machine)
}

fn is_settled(status: &egress_proxies_core::crd::ProxyStatus, value: &str) -> bool {
    status.replace_nonce.as_deref() == Some(value) && status.replacing.is_none()
}

fn says(proxy: &Proxy, reason: &str) -> bool {
    let conditions = proxy.status.iter().flat_map(|status| &status.conditions);
    let mut provisioned = conditions.filter(|it| it.type_ == ConditionType::Provisioned.as_str());
    provisioned.any(|condition| condition.reason == reason)
}
