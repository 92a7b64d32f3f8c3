//! The operator's loop: the same as the real one, with each effect given its fate, and a death before or
//! after any of them.

use egress_proxies_core::crd::ProxyStatus;
use egress_proxies_core::facts::Auth;
use egress_proxies_core::ids::{InstanceId, ProviderName};
use egress_proxies_core::lifecycle::{
    Action, CloudInitView, Memory, MetadataPatch, Observed, Outcome, Policy, ProviderFacts, ProviderView,
    Requeue, Surroundings, Written, absorb, decide, sending, spec_hash, spec_tag_of,
};
use egress_proxies_core::provider::{
    Instance, InstanceRef, Observation, ProviderInfo, ProviderSettings, Reason,
};

use super::cloud::{Fate, LIST_LAG, LONGEST_CALL};
use super::world::{Sight, World};

/// When the operator dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// Before the effect.
    Before,
    /// After the effect, before its answer is taken in.
    After,
    /// The same, but only the pass dies (a panic): what was remembered before the effect stays.
    Pass,
}

/// What happens to the effects of one pass, in order; the last one stands for all that follow.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    /// Fates of provider calls.
    pub(crate) fates: Vec<Fate>,
    /// Fates of API calls; anything but `Fine`, `AnswerLost` and `FailsBefore` counts as `FailsBefore`.
    pub(crate) api: Vec<Fate>,
    /// The operator dies at this effect.
    pub(crate) death: Option<(usize, Death)>,
    /// Somebody removes the object by force before this effect.
    pub(crate) forced_away: Option<usize>,
    /// Somebody edits the spec while this effect is under way: another zone.
    pub(crate) edited: Option<usize>,
    /// How old the cache is at the start, in versions.
    pub(crate) behind: usize,
}

impl Script {
    fn force_away_before(&self, step: usize, world: &mut World) {
        if self.forced_away == Some(step) {
            world.cluster.delete(world.now().wall);
            world.cluster.force_finalizers_away();
        }
    }

    fn edit_during(&self, step: usize, world: &mut World) {
        if self.edited == Some(step) {
            world.cluster.edit(|spec| spec.placement.get_or_insert_default().zone = Some("z7".to_owned()));
        }
    }
}

/// How a pass ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// As it should.
    Waits(Requeue, &'static str),
    /// The operator died at its `n`-th effect.
    Died,
    /// The cache shows no object.
    NoObject,
}

/// State of the provider in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registry {
    Ready,
    Loading,
    Failed,
    Unknown,
}

fn provider_view(registry: Registry, scope: &str) -> ProviderView {
    match registry {
        Registry::Loading => ProviderView::Loading,
        Registry::Failed => ProviderView::Failed { stage: "compile", reason: "no such file".to_owned() },
        Registry::Unknown => ProviderView::Unknown(Vec::new()),
        Registry::Ready => ProviderView::Ready(ProviderFacts {
            info: ProviderInfo {
                name: ProviderName::parse("fake").unwrap(),
                digest: "sha256:00".to_owned(),
                config_hash: "c0".to_owned(),
                scope: scope.to_owned(),
                bootstrap_max_bytes: 0,
                list_lag: LIST_LAG,
                takes_access: false,
                longest_call: LONGEST_CALL,
                settings: ProviderSettings::default(),
            },
        }),
    }
}

pub(crate) fn surroundings(world: &World) -> Surroundings {
    let why = || "there is no such Secret".to_owned();
    Surroundings {
        cluster: "cluster-a".to_owned(),
        provider: provider_view(world.registry, world.scope),
        cloud_init: if world.unreadable { CloudInitView::Problem(why()) } else { CloudInitView::NotUsed },
        auth: if world.unreadable { Auth::Missing(why()) } else { Auth::None },
        probe_configured: true,
        verdict: world.verdict.clone(),
        leases: world.leases,
    }
}

/// One pass. Checks the world after each effect.
pub(crate) fn pass(world: &mut World, script: &Script) -> End {
    let policy = Policy::default();
    let seed = world.next_seed();
    let memory = world.memory.take().unwrap_or_else(|| Memory::new(seed));
    let Some(object) = world.cluster.cached(script.behind) else {
        world.memory = Some(memory);
        return End::NoObject;
    };
    let mut observed = Observed::begin(object, surroundings(world), memory);
    let mut calls = Calls::default();
    for step in 0.. {
        assert!(step < 200, "a pass without end: {:?}", world.rows);
        observed.surroundings = surroundings(world);
        let decision = decide(&observed, &policy, world.now());
        world.rows.push(decision.row);
        if decision.action == Action::Wait {
            world.memory = Some(observed.memory);
            return End::Waits(decision.requeue, decision.row);
        }
        script.force_away_before(step, world);
        let death = script.death.filter(|(at, _)| *at == step).map(|(_, death)| death);
        if death == Some(Death::Before) {
            world.lose_ledger();
            return End::Died;
        }
        sending(&mut observed, &decision.action);
        let before = observed.memory.clone();
        let outcome = effect(world, script, &observed, decision.action, &mut calls);
        world.check();
        script.edit_during(step, world);
        match death {
            Some(Death::After) => {
                world.lose_ledger();
                return End::Died;
            }
            Some(Death::Pass) => {
                world.memory = Some(before);
                return End::Died;
            }
            Some(Death::Before) | None => {}
        }
        absorb(&mut observed, outcome, &policy, world.now());
    }
    unreachable!()
}

/// Calls of a pass so far.
#[derive(Debug, Default)]
struct Calls {
    provider: usize,
    api: usize,
}

/// Carries out one effect, with its fate.
fn effect(
    world: &mut World,
    script: &Script,
    observed: &Observed,
    action: Action,
    calls: &mut Calls,
) -> Outcome {
    match action {
        Action::Wait => unreachable!(),
        Action::LookAgain
        | Action::PatchMetadata(_)
        | Action::WriteStatus(_)
        | Action::RemoveFinalizer(_)
        | Action::Abandon { .. } => {
            calls.api += 1;
            api_effect(world, observed, action, fate_at(&script.api, calls.api - 1))
        }
        Action::AskLeave(ask) => {
            let admission = world.ask(&ask);
            Outcome::Asked { ask, admission }
        }
        Action::ValidateCreate { .. }
        | Action::Get(_)
        | Action::ListOwned(_)
        | Action::Create { .. }
        | Action::Delete { .. } => {
            calls.provider += 1;
            check_fresh(world, script, observed, &action);
            provider_effect(world, action, fate_at(&script.fates, calls.provider - 1))
        }
    }
}

fn fate_at(fates: &[Fate], at: usize) -> Fate {
    fates.get(at).or_else(|| fates.last()).copied().unwrap_or(Fate::Fine)
}

fn api_effect(world: &mut World, observed: &Observed, action: Action, fate: Fate) -> Outcome {
    let fails = !matches!(fate, Fate::Fine | Fate::AnswerLost);
    let lost = fate == Fate::AnswerLost;
    let carry = |world: &mut World, effect: &mut dyn FnMut(&mut World) -> Written| {
        if fails {
            return Written::Failed("connection refused".to_owned());
        }
        let answer = effect(world);
        if lost { Written::Failed("timeout".to_owned()) } else { answer }
    };
    match action {
        Action::LookAgain => Outcome::Looked(carry(world, &mut |world| world.cluster.get())),
        Action::PatchMetadata(patch) => {
            Outcome::MetadataPatched(carry(world, &mut |world| world.cluster.patch_metadata(&patch)))
        }
        Action::Abandon { patch, machine } if !observed.object.is_abandoned() => {
            check_told(world, &machine.unwrap());
            Outcome::FinalizerRemoved(carry(world, &mut |world| let_go(world, &patch)))
        }
        Action::Abandon { patch, .. } => {
            world.abandoned = true; // it is told, whatever becomes of the patch
            Outcome::FinalizerRemoved(carry(world, &mut |world| world.cluster.patch_metadata(&patch)))
        }
        Action::RemoveFinalizer(patch) => {
            Outcome::FinalizerRemoved(carry(world, &mut |world| let_go(world, &patch)))
        }
        Action::WriteStatus(asked) => {
            let version = &observed.object.resource_version;
            let result = carry(world, &mut |world| {
                check_ready(world, observed, &asked);
                check_abandoned(world, observed, &asked);
                world.cluster.write_status(version, &asked)
            });
            Outcome::StatusWritten { asked, result }
        }
        Action::Wait
        | Action::AskLeave(_)
        | Action::ValidateCreate { .. }
        | Action::Get(_)
        | Action::ListOwned(_)
        | Action::Create { .. }
        | Action::Delete { .. } => unreachable!(),
    }
}

/// The finalizer goes: nothing of ours may be left.
fn let_go(world: &mut World, patch: &MetadataPatch) -> Written {
    let answer = world.cluster.patch_metadata(patch);
    if world.cluster.live().is_none() {
        world.check_nothing_left();
    }
    answer
}

/// What stays although nobody said so is not ours, and the status says which it is.
fn check_told(world: &mut World, machine: &InstanceId) {
    let told = |text: &str| text.contains(machine.as_str());
    let conditions =
        world.cluster.live().and_then(|proxy| proxy.status.clone()).unwrap_or_default().conditions;
    let says = conditions.iter().any(|it| it.reason == "NameConflict" && told(&it.message));
    assert!(says, "{machine} is left and nobody was told: {conditions:?}\n{}", world.story());
    world.told.push(machine.clone());
}

fn provider_effect(world: &mut World, action: Action, fate: Fate) -> Outcome {
    let now = world.now().mono.since_start();
    match action {
        Action::ValidateCreate { key, request } => {
            Outcome::Validated { key, result: world.cloud.validate(&request) }
        }
        Action::Get(target) => {
            let mut result = world.cloud.get(&target, fate);
            if let Ok(Observation::Found(instance)) = &mut result {
                blinded(world, instance);
            }
            if let (Sight::NoneIsThere(cause), Ok(Observation::Found(_))) = (&world.sight, &result) {
                result = Ok(Observation::Absent(cause.clone()));
            }
            Outcome::Got { target, result }
        }
        Action::ListOwned(owner) => {
            let mut result = world.cloud.list(&owner, fate, now);
            for instance in result.iter_mut().flat_map(|listing| &mut listing.items) {
                blinded(world, instance);
            }
            if let Ok(listing) = result.as_mut().map(|listing| &mut listing.items)
                && matches!(world.sight, Sight::NoneIsThere(_))
            {
                listing.clear();
            }
            Outcome::Listed(result)
        }
        Action::Create { key, request } => {
            Outcome::Created { key, result: world.cloud.create(&request, fate, now) }
        }
        Action::Delete { target, .. } => {
            check_delete(world, &target);
            let result = world.cloud.delete(&target, fate, now);
            Outcome::Deleted { target, result }
        }
        Action::Wait
        | Action::AskLeave(_)
        | Action::Abandon { .. }
        | Action::LookAgain
        | Action::PatchMetadata(_)
        | Action::WriteStatus(_)
        | Action::RemoveFinalizer(_) => unreachable!(),
    }
}

/// What the provider says of a machine while it sees wrongly.
fn blinded(world: &World, instance: &mut Instance) {
    match &world.sight {
        Sight::AllAre(state) => {
            instance.state = state.clone();
            instance.endpoints.clear();
        }
        Sight::AllAreForeign => {
            instance.tags.insert("proxy-operator-cluster".to_owned(), "cluster-b".to_owned());
        }
        Sight::Right | Sight::NoneIsThere(_) => {}
    }
}

/// Ours only, and hidden first.
fn check_delete(world: &World, target: &InstanceRef) {
    if let Some(instance) = world.cloud.view(&target.id) {
        let ours = target.owner.iter().all(|(key, value)| instance.tags.get(key) == Some(value));
        assert!(ours && target.owner.len() == 2, "a delete of {instance:?}\n{}", world.story());
    }
    let Some(proxy) = world.cluster.live() else { return };
    let shown = proxy.status.as_ref().and_then(|status| status.ip.as_ref());
    let hidden = proxy.metadata.deletion_timestamp.is_some() || shown.is_none();
    assert!(hidden, "a delete of {target:?} while clients are sent there\n{}", world.story());
}

/// Ready of a generation is said only of a machine that was made from its spec.
fn check_ready(world: &World, observed: &Observed, asked: &ProxyStatus) {
    let object = &observed.object;
    let ready =
        asked.conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True");
    let id = asked.provider_id.as_ref().and_then(|id| InstanceId::parse(id.as_str()).ok());
    if ready.is_some_and(|ready| ready.observed_generation == Some(object.generation))
        && let Some(instance) = id.and_then(|id| world.cloud.view(&id))
    {
        let tag = spec_hash(&object.spec, None).tag();
        assert_eq!(spec_tag_of(&instance), Some(tag.as_str()), "{asked:?}\n{}", world.story());
    }
}

/// A machine is left behind only while nobody can be asked about it: the provider is not there, looks elsewhere, or was
/// denied what it asked for five times in a row.
fn check_abandoned(world: &World, observed: &Observed, asked: &ProxyStatus) {
    let says = asked.conditions.iter().any(|condition| condition.reason == "Abandoned");
    let object = &observed.object;
    let scopes = [&object.status.provider_scope, &object.planned_scope];
    let elsewhere = scopes.into_iter().flatten().any(|scope| scope != world.scope);
    let memory = &observed.memory;
    let trouble = memory.trouble.as_ref();
    let denied = memory.failures >= 5 && trouble.is_some_and(|it| it.failure.reason == Reason::Denied);
    let unavailable = world.registry != Registry::Ready;
    assert!(!says || unavailable || elsewhere || denied, "it could be deleted\n{}", world.story());
}

/// Fresh eyes: nobody has changed the object since it was read, unless somebody did so just now. And no delete of
/// what was said to stay, unless by a process that does not see what it wrote itself.
fn check_fresh(world: &World, script: &Script, observed: &Observed, action: &Action) {
    let sees = script.behind == 0;
    let stays = world.abandoned && sees && matches!(action, Action::Delete { .. });
    assert!(!stays, "{action:?} of what was left behind\n{}", world.story());
    if script.forced_away.is_some() || script.edited.is_some() {
        return;
    }
    let creates = matches!(action, Action::Create { .. });
    let deletes = matches!(action, Action::Delete { .. }) && !observed.object.deleting;
    let live = world.cluster.live().and_then(|proxy| proxy.metadata.resource_version.clone());
    if creates || (deletes && live.is_some()) {
        let seen = Some(&observed.object.resource_version);
        assert_eq!(live.as_ref(), seen, "{action:?} on old news\n{}", world.story());
    }
}
