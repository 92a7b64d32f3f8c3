//! One loaded provider instance: permits, checks before a call, the call on the guests' runtime, checks
//! after it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use egress_proxies_core::lifecycle::machine_name_of;
use egress_proxies_core::provider::{
    Call, CreatePlan, CreateRequest, Deletion, Failure, HostFault, InstanceRef, Listing, Observation,
    Provider, ProviderInfo, Reason, Tags,
};
use ipnet::IpNet;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::bindings::{Provider as Guest, egress_proxies::provider::model};
use crate::call::mask::Mask;
use crate::call::{self, Body, CallSetup, Instance, Op};
use crate::convert::{self, Place, Wanted};
use crate::gate::Errand;
use crate::load::{self, CheckError, DocumentSchema, Loaded};
use crate::threads::Seats;

/// Machines of one page.
const PAGE: u32 = 1_000;
/// Pages of one listing.
const MOST_PAGES: u32 = 100;
/// Times that a listing starts anew after a stale cursor.
const MOST_RESTARTS: u32 = 2;

/// What the host itself may hold for one call besides the guest's memory: answers (16 MiB), bodies of
/// requests (16 MiB), resources (1,024 of up to 24 KiB) and what is being copied (8 MiB).
pub(crate) const HOST_MIB: u32 = 64;
/// Texts of all machines of one listing.
const MOST_LISTED_BYTES: usize = 32 << 20;
/// What a machine, an endpoint or a tag holds besides its texts.
const ITEM_BYTES: usize = 256;
const TAG_BYTES: usize = 64;

/// Memory of all calls in flight, over all providers. Deletes have a share of their own, so that a busy
/// operator can always clean up.
#[derive(Debug, Clone)]
pub(crate) struct MemoryPool {
    calls: Arc<Semaphore>,
    deletes: Arc<Semaphore>,
}

impl MemoryPool {
    /// `mebibytes` in all; a quarter is for deletes.
    pub(crate) fn new(mebibytes: u32) -> Self {
        let all = usize::try_from(mebibytes).unwrap_or(usize::MAX);
        let deletes = all / 4;
        Self { calls: Arc::new(Semaphore::new(all - deletes)), deletes: Arc::new(Semaphore::new(deletes)) }
    }
}

/// Permits of one instance.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    calls: Arc<Semaphore>,
    deletes: Arc<Semaphore>,
    memory: MemoryPool,
}

impl Permits {
    pub(crate) fn new(concurrency: u32, memory: MemoryPool) -> Self {
        let count = usize::try_from(concurrency).unwrap_or(1);
        Self { calls: Arc::new(Semaphore::new(count)), deletes: Arc::new(Semaphore::new(count)), memory }
    }

    /// Both permits at once or none; never waits.
    fn take(&self, op: Op, mebibytes: u32) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let (calls, memory) = match op {
            Op::Delete => (&self.deletes, &self.memory.deletes),
            Op::Describe | Op::ValidateConfig | Op::ValidateCreate | Op::Create | Op::Get | Op::List => {
                (&self.calls, &self.memory.calls)
            }
        };
        let call = Arc::clone(calls).try_acquire_owned().ok()?;
        let mebibytes = mebibytes.saturating_add(HOST_MIB);
        let memory = Arc::clone(memory).try_acquire_many_owned(mebibytes).ok()?;
        Some((call, memory))
    }
}

/// A provider instance that is ready.
pub(crate) struct WasmProvider {
    pub(crate) info: ProviderInfo,
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) instance: Arc<Instance>,
    pub(crate) address_cidrs: Arc<[IpNet]>,
    pub(crate) permits: Permits,
    pub(crate) seats: Seats,
    pub(crate) tasks: TaskTracker,
    /// Ends calls under way when the host stops.
    pub(crate) stop: CancellationToken,
}

/// What a call is about.
#[derive(Clone, Copy)]
enum Subject<'a> {
    /// A machine to be made, now or later.
    Wanted(&'a CreateRequest),
    /// A machine to be looked at, or all of them.
    Seen,
    /// A machine to be deleted.
    Unwanted(&'a InstanceRef),
}

impl Subject<'_> {
    fn mask(self) -> Mask {
        match self {
            Self::Wanted(request) => Mask::of(request),
            Self::Seen | Self::Unwanted(_) => Mask::default(),
        }
    }

    fn errand(self) -> Errand {
        match self {
            Self::Wanted(request) => Errand::Make(request.name.clone()),
            Self::Seen => Errand::Look,
            // A machine is named after the uid that it belongs to, and ids are the provider's own.
            Self::Unwanted(target) => machine_name_of(&target.owner).map_or(Errand::Look, Errand::Remove),
        }
    }
}

impl WasmProvider {
    /// One call on the guests' runtime; dropping the future cancels it.
    async fn call<T: Send + 'static>(
        &self,
        op: Op,
        subject: Subject<'_>,
        timeout: Duration,
        body: Body<T>,
    ) -> Result<T, Failure> {
        let name = &self.info.name;
        let Some(permit) = self.permits.take(op, self.instance.limits.memory_mib) else {
            self.instance.recorder.no_permit(name);
            return Err(Failure::new(
                Reason::Host(HostFault::NoPermit),
                format!("provider {name} has as many calls under way as it may; asked again soon"),
            ));
        };
        let setup = CallSetup {
            op,
            guest: self.loaded.guest.clone(),
            instance: Arc::clone(&self.instance),
            mask: subject.mask(),
            errand: subject.errand(),
            timeout,
        };
        let stop = self.stop.clone();
        let seat = self.seats.take();
        let held = seat.clone();
        let work = async move {
            let answer = stop.run_until_cancelled(call::run(setup, body)).await;
            drop((permit, held));
            answer.unwrap_or_else(|| Err(Failure::new(Reason::Transient, "the operator is shutting down")))
        };
        let task = self.tasks.spawn_on(work, seat.handle());
        AbortOnDropHandle::new(task).await.unwrap_or_else(|error| {
            tracing::error!(provider = %name, op = op.label(), %error, "a provider call ended outside of its bounds");
            let what = if error.is_panic() { "the host failed while it handled the call" } else { "the host is shutting down" };
            Err(Failure::new(Reason::Host(HostFault::Trap), what))
        })
    }

    fn place<'a>(&'a self, op: Op, mask: &'a Mask, port: Option<u16>) -> Place<'a> {
        Place { op, mask, address_cidrs: &self.address_cidrs, port }
    }

    /// What the guest need not look at again.
    async fn check(&self, request: &CreateRequest) -> Result<(), Failure> {
        let name = &self.info.name;
        if self.info.settings.delete_only {
            return Err(Failure::new(
                Reason::Denied,
                format!(
                    "provider {name} takes no new machines: it is in mode deleteOnly in the providers config"
                ),
            ));
        }
        document(&self.loaded.placement_schema, "/placement", &request.placement).await?;
        document(&self.loaded.parameters_schema, "/parameters", &request.parameters).await?;
        let bytes = request.bootstrap.as_ref().map_or(0, |bootstrap| bootstrap.expose().len());
        let most = self.info.bootstrap_max_bytes;
        if u64::try_from(bytes).unwrap_or(u64::MAX) > u64::from(most) && bytes > 0 {
            let what = if most == 0 {
                format!("provider {name} takes no cloudInit")
            } else {
                format!("cloudInit has {bytes} bytes; provider {name} takes at most {most}")
            };
            return Err(Failure::new(Reason::Invalid("/bootstrap".into()), what));
        }
        if request.access.is_some() && !self.info.takes_access {
            return Err(Failure::new(
                Reason::Unsupported,
                format!("provider {name} cannot make machines that demand credentials; remove spec.auth"),
            ));
        }
        Ok(())
    }

    async fn list(&self, wanted: Wanted<'_>) -> Result<Listing, Failure> {
        let mask = Mask::default();
        let deadline = Instant::now() + Op::List.deadline();
        let (mut listing, mut cursor, mut restarts) = (Listing::default(), None::<String>, 0);
        let (mut pages, mut held, mut seen) = (0, 0_usize, HashSet::new());
        loop {
            pages += 1;
            if pages > MOST_PAGES {
                return Err(convert::bad_answer(format!("list-by-tag has more than {MOST_PAGES} pages")));
            }
            let request = convert::list_request(wanted, cursor.clone(), PAGE);
            let body: Body<_> = Box::new(|store, guest: &Guest, context| {
                Box::pin(async move {
                    guest
                        .egress_proxies_provider_lifecycle()
                        .call_list_by_tag(store, &context, &request)
                        .await
                })
            });
            let left = deadline.saturating_duration_since(Instant::now());
            let page = match self.call(Op::List, Subject::Seen, left, body).await? {
                Ok(page) => convert::page(page, wanted, PAGE, self.place(Op::List, &mask, None))?,
                Err(model::Failure { reason: model::Reason::StaleCursor, .. })
                    if cursor.is_some() && restarts < MOST_RESTARTS =>
                {
                    restarts += 1;
                    (listing, cursor) = (Listing::default(), None);
                    seen.clear();
                    held = 0;
                    continue;
                }
                Err(failure) => return Err(convert::failure(failure, Op::List, &mask)),
            };
            // A machine may move to a later page while pages are read.
            for item in page.items {
                if seen.insert(item.id.clone()) {
                    held = held.saturating_add(bytes(&item));
                    listing.items.push(item);
                }
            }
            if held > MOST_LISTED_BYTES {
                let most = MOST_LISTED_BYTES >> 20;
                return Err(convert::bad_answer(format!(
                    "list-by-tag answered with more than {most} MiB of machines"
                )));
            }
            listing.unreachable.extend(page.unreachable);
            match page.next {
                None => return Ok(listing),
                Some(next) if cursor.as_ref() == Some(&next) => {
                    return Err(convert::bad_answer(
                        "list-by-tag answered with the cursor that it was given",
                    ));
                }
                Some(next) => cursor = Some(next),
            }
        }
    }
}

async fn document(
    schema: &Arc<DocumentSchema>,
    root: &str,
    document: &Map<String, Value>,
) -> Result<(), Failure> {
    load::check(schema, document).await.map_err(|error| match error {
        CheckError::Fault(fault) => {
            let pointer = format!("{root}{}", fault.pointer);
            let message = format!("spec{}: {}", pointer.replace('/', "."), fault.message);
            Failure::new(Reason::Invalid(pointer), message)
        }
        CheckError::Undecided(why) => {
            Failure::new(Reason::Transient, format!("spec{} {why}", root.replace('/', ".")))
        }
    })
}

/// What a machine of a listing holds.
fn bytes(machine: &egress_proxies_core::provider::Instance) -> usize {
    let tags: usize = machine.tags.iter().map(|(key, value)| key.len() + value.len() + TAG_BYTES).sum();
    let endpoints: usize = machine.endpoints.iter().map(|endpoint| endpoint.address.len() + ITEM_BYTES).sum();
    let problem = machine.problem.as_ref().map_or(0, |problem| problem.message.len());
    machine.id.as_str().len() + machine.name.len() + tags + endpoints + problem + ITEM_BYTES
}

impl Provider for WasmProvider {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn validate_create<'a>(&'a self, request: &'a CreateRequest) -> Call<'a, CreatePlan> {
        Box::pin(async move {
            self.check(request).await?;
            let given = convert::create_request(request);
            let body: Body<_> = Box::new(|store, guest: &Guest, context| {
                Box::pin(async move {
                    guest.egress_proxies_provider_meta().call_validate_create(store, &context, &given).await
                })
            });
            let op = Op::ValidateCreate;
            match self.call(op, Subject::Wanted(request), op.deadline(), body).await? {
                Ok(plan) => convert::plan(plan),
                Err(failure) => Err(convert::failure(failure, op, &Mask::of(request))),
            }
        })
    }

    fn create<'a>(&'a self, request: &'a CreateRequest) -> Call<'a, egress_proxies_core::provider::Instance> {
        Box::pin(async move {
            self.check(request).await?;
            let given = convert::create_request(request);
            let body: Body<_> = Box::new(|store, guest: &Guest, context| {
                Box::pin(async move {
                    guest.egress_proxies_provider_lifecycle().call_create(store, &context, &given).await
                })
            });
            let (op, mask) = (Op::Create, Mask::of(request));
            match self.call(op, Subject::Wanted(request), op.deadline(), body).await? {
                Ok(made) => convert::created(made, &request.tags, self.place(op, &mask, Some(request.port))),
                Err(failure) => Err(convert::failure(failure, op, &mask)),
            }
        })
    }

    fn get<'a>(&'a self, target: &'a InstanceRef) -> Call<'a, Observation> {
        Box::pin(async move {
            let given = convert::instance_ref(target);
            let body: Body<_> = Box::new(|store, guest: &Guest, context| {
                Box::pin(async move {
                    guest.egress_proxies_provider_lifecycle().call_get(store, &context, &given).await
                })
            });
            let (op, mask) = (Op::Get, Mask::default());
            match self.call(op, Subject::Seen, op.deadline(), body).await? {
                Ok(seen) => convert::observation(seen, target, self.place(op, &mask, None)),
                Err(failure) => Err(convert::failure(failure, op, &mask)),
            }
        })
    }

    fn delete<'a>(&'a self, target: &'a InstanceRef) -> Call<'a, Deletion> {
        Box::pin(async move {
            let given = convert::instance_ref(target);
            let body: Body<_> = Box::new(|store, guest: &Guest, context| {
                Box::pin(async move {
                    guest.egress_proxies_provider_lifecycle().call_delete(store, &context, &given).await
                })
            });
            match self.call(Op::Delete, Subject::Unwanted(target), Op::Delete.deadline(), body).await? {
                Ok(deletion) => Ok(convert::deletion(deletion)),
                Err(failure) => Err(convert::failure(failure, Op::Delete, &Mask::default())),
            }
        })
    }

    fn list_owned<'a>(&'a self, owner: &'a Tags) -> Call<'a, Listing> {
        Box::pin(self.list(Wanted::Owned(owner)))
    }

    fn list_untagged<'a>(&'a self, owner: &'a Tags, prefix: &'a str) -> Call<'a, Listing> {
        Box::pin(self.list(Wanted::Untagged { owner, prefix }))
    }
}
