//! Carries out what a schedule says, and brings calm in the end.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::accounts::uses_secret;
use crate::operator::World;
use crate::provider::Component;
use crate::schedule::{Event, NAMES, Terms};

const THEIRS: &str = "example.com/theirs";
/// An event that waits for the operator waits no longer.
const AWHILE: Duration = Duration::from_millis(800);

/// Lets it happen.
pub(crate) async fn happen(world: &World, event: Event, kill: &mpsc::Sender<Duration>) {
    match event {
        Event::Create(name) => drop(world.create(name, spec(name, 3128)).await),
        Event::Delete(name) => world.delete(name).await,
        Event::Recreate(name) => {
            world.delete(name).await;
            until_gone(world, name).await;
            drop(world.create(name, spec(name, 3129)).await);
        }
        Event::Port(name, port) => world.edit(name, json!({"spec": {"port": port}})).await,
        Event::PortOfAll(port) => {
            let edits = NAMES.map(|name| world.edit(name, json!({"spec": {"port": port}})));
            drop(join_all(edits).await);
        }
        Event::Size(name, size) => {
            world.edit(name, json!({"spec": {"parameters": {"size": size}}})).await;
        }
        Event::Suspend(name, suspend) => drop(world.patch(name, json!({"spec": {"suspend": suspend}})).await),
        Event::Label(name, value) => {
            drop(world.patch(name, json!({"metadata": {"labels": {"team": value.to_string()}}})).await);
        }
        Event::Finalizer(name, there) => world.finalizer(name, THEIRS, there).await,
        Event::Replace(name, number) => world.replace(name, &format!("value-{number}")).await,
        Event::Abandon(name, component) => {
            world.put_provider(component);
            world.delete(name).await;
            world.abandon(name).await;
            until_gone(world, name).await;
        }
        Event::SaysAbandon(name) => world.abandon(name).await,
        Event::Lease(name) => world.clients.take(world, name).await,
        Event::GiveBack(name) => {
            let uid = world.get(name).await.and_then(|proxy| proxy.metadata.uid);
            world.clients.end(&uid.unwrap_or_default());
        }
        Event::Rotate(text) => world.put_secret(&text.to_string(), true).await,
        Event::Secret(visible) => world.put_secret("0", visible).await,
        Event::Provider(component) => world.put_provider(component),
        Event::Vanish(which) => world.cloud.harm(which, false),
        Event::Stop(which) => world.cloud.harm(which, true),
        Event::Weather(percent) => world.fates.weather(percent),
        Event::Kill => drop(kill.send(Duration::from_millis(100)).await),
        Event::Pause(millis) => world.fates.pause(Duration::from_millis(millis)),
        Event::AtEffect(effects, way) => world.fates.strikes_in(effects, way),
    }
}

async fn until_gone(world: &World, name: &str) {
    let free = world.until(name, |object| object.is_none());
    drop(tokio::time::timeout(AWHILE, free).await);
}

fn spec(name: &str, port: u16) -> Value {
    if uses_secret(name) {
        let cloud_init = json!({"secretRef": {"name": "boot", "key": "text"}});
        return json!({"mode": "Managed", "provider": "fake", "port": port, "cloudInit": cloud_init});
    }
    json!({"mode": "Managed", "provider": "fake", "port": port})
}

/// Everything outside is well again, and users put right what they got wrong.
pub(crate) async fn calm(world: &World, terms: &Terms) {
    world.fates.weather(0);
    if !terms.leases_last {
        world.clients.end_all();
    }
    world.put_provider(Component::Ready);
    world.put_secret("0", true).await;
    for name in NAMES {
        world.finalizer(name, THEIRS, false).await;
        world.edit(name, json!({"spec": {"parameters": {"size": 1}}})).await;
    }
}
