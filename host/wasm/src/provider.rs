//! One loaded provider instance: permits, checks before a call, the call on the guests' runtime, checks
//! after it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use egress_proxies_core::ids::InstanceId;
use egress_proxies_core::lifecycle::machine_name_of;
use egress_proxies_core::provider::{
    Call, CreatePlan, CreateRequest, Deletion, Failure, HostFault, InstanceRef, Listing, Observation,
    Provider, ProviderInfo, Reason, Tags,
};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::bindings::{Provider as Guest, egress_proxies::provider::model};
use crate::call::mask::Mask;
use crate::call::{self, Body, CallSetup, Ended, Instance, Op};
use crate::convert::{self, Place, Wanted};
use crate::gate::Errand;
use crate::load::{self, CheckError, DocumentSchema, Loaded};
use crate::permits::{Permits, Refused, Taken};
use crate::threads::Seats;

/// Machines of one page: few, since a page is in memory as the upstream wrote it, and as the guest read it.
const PAGE: u32 = 100;
/// The same for a provider with more of them than pages hold.
const LARGE_PAGE: u32 = 1_000;
/// Pages of one listing.
const MOST_PAGES: u32 = 100;
/// Times that a listing starts anew after a stale cursor.
const MOST_RESTARTS: u32 = 2;

/// What is said to a call that comes too late.
const STOPPING: &str = "the operator is shutting down";
/// Texts of all machines of one listing.
const MOST_LISTED_BYTES: usize = 32 << 20;
/// What a machine, an endpoint or a tag holds besides its texts.
const ITEM_BYTES: usize = 256;
const TAG_BYTES: usize = 64;

/// A provider instance that is ready.
pub(crate) struct WasmProvider {
    pub(crate) info: ProviderInfo,
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) instance: Arc<Instance>,
    pub(crate) permits: Permits,
    pub(crate) seats: Seats,
    pub(crate) tasks: TaskTracker,
    /// No call begins any more.
    pub(crate) stopping: CancellationToken,
    /// Calls under way end.
    pub(crate) cut: CancellationToken,
    /// A listing of [`PAGE`]s did not end, or not in time.
    pub(crate) many: AtomicBool,
}

/// What a call is about.
#[derive(Clone, Copy)]
enum Subject<'a> {
    /// A machine to be made, now or later, and what must not be repeated of it.
    Wanted(&'a CreateRequest, &'a Mask),
    /// A machine to be looked at, or all of them.
    Seen,
    /// A machine to be deleted.
    Unwanted(&'a InstanceRef),
}

impl Subject<'_> {
    fn mask(self) -> Mask {
        match self {
            Self::Wanted(_, mask) => mask.clone(),
            Self::Seen | Self::Unwanted(_) => Mask::default(),
        }
    }

    fn errand(self) -> Errand {
        match self {
            Self::Wanted(request, _) => Errand::Make(request.name.clone()),
            Self::Seen => Errand::Look,
            // A machine is named after the uid that it belongs to, and ids are the provider's own.
            Self::Unwanted(target) => machine_name_of(&target.owner).map_or(Errand::Look, Errand::Remove),
        }
    }
}

impl WasmProvider {
    /// Permits for a call, or why there are none.
    async fn permit(&self, op: Op) -> Result<Taken, Failure> {
        let name = &self.info.name;
        if self.stopping.is_cancelled() {
            return Err(Failure::new(Reason::Transient, STOPPING));
        }
        self.permits.take(op).await.map_err(|refused| {
            self.instance.recorder.no_permit(name);
            let (what, retry_after) = match refused {
                Refused::Busy => ("has as many calls under way as it may; asked again soon", None),
                Refused::Paused(left) => ("was throttled; asked again when that is over", Some(left)),
            };
            let failure = Failure::new(Reason::Host(HostFault::NoPermit), format!("provider {name} {what}"));
            Failure { retry_after, ..failure }
        })
    }

    /// A rate limit counts the calls of the whole instance: whoever meets it holds up the others.
    fn heed<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        answer.inspect_err(|failure| {
            if failure.reason == Reason::Throttled {
                self.permits.pause(failure.retry_after);
            }
        })
    }

    /// One call with permits of its own.
    async fn call<T: Send + 'static>(
        &self,
        op: Op,
        subject: Subject<'_>,
        body: Body<T>,
    ) -> Result<Ended<T>, Failure> {
        let permit = self.permit(op).await?;
        self.call_with(permit, self.setup(op, subject), body).await
    }

    fn setup(&self, op: Op, subject: Subject<'_>) -> CallSetup {
        CallSetup {
            op,
            guest: self.loaded.guest.clone(),
            instance: Arc::clone(&self.instance),
            mask: subject.mask(),
            errand: subject.errand(),
            timeout: op.deadline(),
        }
    }

    /// One call on the guests' runtime; dropping the future cancels it.
    async fn call_with<T: Send + 'static>(
        &self,
        permit: Taken,
        setup: CallSetup,
        body: Body<T>,
    ) -> Result<Ended<T>, Failure> {
        let (name, op, cut) = (&self.info.name, setup.op, self.cut.clone());
        let seat = self.seats.take();
        let handle = seat.handle().clone();
        let work = async move {
            let ended = cut.run_until_cancelled(call::run(setup, body)).await;
            drop((permit, seat));
            ended.ok_or_else(|| Failure::new(Reason::Transient, STOPPING))
        };
        let task = self.tasks.spawn_on(work, &handle);
        AbortOnDropHandle::new(task).await.unwrap_or_else(|error| {
            tracing::error!(provider = %name, op = op.label(), %error, "a provider call ended outside of its bounds");
            let what = if error.is_panic() { "the host failed while it handled the call" } else { "the host is shutting down" };
            Err(Failure::new(Reason::Host(HostFault::Trap), what))
        })
    }

    fn place<'a>(&'a self, op: Op, mask: &'a Mask, port: Option<u16>) -> Place<'a> {
        Place { op, mask, address_cidrs: &self.info.settings.address_cidrs, port }
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

    /// All pages with the permits of one call: a busy moment between two of them ends nothing. Pages of a listing have
    /// one size: where a cursor is a number of a page, another one would leave machines out.
    async fn list(&self, wanted: Wanted<'_>) -> Result<Listing, Failure> {
        let permit = self.permit(Op::List).await?;
        let deadline = Instant::now() + Op::List.deadline();
        if !self.many.load(Ordering::Relaxed) {
            let small = self.pages(wanted, PAGE, &permit, deadline).await;
            let too_many = matches!(small, Ok(None)) || Instant::now() >= deadline;
            self.many.store(too_many, Ordering::Relaxed);
            if let Some(listing) = small? {
                return Ok(listing);
            }
        }
        let listing = self.pages(wanted, LARGE_PAGE, &permit, deadline).await?;
        listing.ok_or_else(|| convert::bad_answer(format!("list-by-tag has more than {MOST_PAGES} pages")))
    }

    /// All pages of this size; none if there are too many.
    async fn pages(
        &self,
        wanted: Wanted<'_>,
        size: u32,
        permit: &Taken,
        deadline: Instant,
    ) -> Result<Option<Listing>, Failure> {
        let mut gathered = Gathered::default();
        while gathered.pages < MOST_PAGES {
            gathered.pages += 1;
            let request = convert::list_request(wanted, gathered.cursor.clone(), size);
            let body: Body<_> = Box::new(|store, guest: &Guest, context| {
                Box::pin(async move {
                    guest
                        .egress_proxies_provider_lifecycle()
                        .call_list_by_tag(store, &context, &request)
                        .await
                })
            });
            let timeout = deadline.saturating_duration_since(Instant::now());
            let setup = CallSetup { timeout, ..self.setup(Op::List, Subject::Seen) };
            let ended = self.call_with(permit.clone(), setup, body).await?;
            let mask = Mask::default();
            let place = self.place(Op::List, &mask, None);
            let step = self.heed(ended.judged(|answer| match answer {
                Ok(page) => gathered.add(convert::page(page, wanted, size, place)?),
                Err(model::Failure { reason: model::Reason::StaleCursor, .. }) if gathered.may_restart() => {
                    gathered.restart();
                    Ok(Step::Further)
                }
                Err(failure) => Err(convert::failure(failure, Op::List, &mask)),
            }))?;
            match step {
                Step::Further => {}
                Step::Complete => return Ok(Some(gathered.listing)),
            }
        }
        Ok(None)
    }
}

/// What to do after a page.
enum Step {
    /// Ask for the next one.
    Further,
    /// It was the last one.
    Complete,
}

/// The pages of a listing so far.
#[derive(Default)]
struct Gathered {
    listing: Listing,
    cursor: Option<String>,
    seen: HashSet<InstanceId>,
    bytes: usize,
    pages: u32,
    restarts: u32,
}

impl Gathered {
    fn add(&mut self, page: convert::Page) -> Result<Step, Failure> {
        // A machine may move to a later page while pages are read.
        for item in page.items {
            if self.seen.insert(item.id.clone()) {
                self.bytes = self.bytes.saturating_add(bytes(&item));
                self.listing.items.push(item);
            }
        }
        if self.bytes > MOST_LISTED_BYTES {
            let most = MOST_LISTED_BYTES >> 20;
            return Err(convert::bad_answer(format!(
                "list-by-tag answered with more than {most} MiB of machines"
            )));
        }
        self.listing.unreachable.extend(page.unreachable);
        match page.next {
            None => Ok(Step::Complete),
            Some(next) if self.cursor.as_ref() == Some(&next) => {
                Err(convert::bad_answer("list-by-tag answered with the cursor that it was given"))
            }
            Some(next) => {
                self.cursor = Some(next);
                Ok(Step::Further)
            }
        }
    }

    /// A cursor can be too old; a first page has none.
    fn may_restart(&self) -> bool {
        self.cursor.is_some() && self.restarts < MOST_RESTARTS
    }

    fn restart(&mut self) {
        *self = Self { restarts: self.restarts + 1, ..Self::default() };
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
            let (op, mask) = (Op::ValidateCreate, Mask::of(request));
            let subject = Subject::Wanted(request, &mask);
            self.call(op, subject, body).await?.judged(|answer| match answer {
                Ok(plan) => convert::plan(plan, &mask),
                Err(failure) => Err(convert::failure(failure, op, &mask)),
            })
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
            let subject = Subject::Wanted(request, &mask);
            let place = self.place(op, &mask, Some(request.port));
            self.heed(self.call(op, subject, body).await?.judged(|answer| match answer {
                Ok(made) => convert::created(made, &request.tags, place),
                Err(failure) => Err(convert::failure(failure, op, &mask)),
            }))
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
            let place = self.place(op, &mask, None);
            self.heed(self.call(op, Subject::Seen, body).await?.judged(|answer| match answer {
                Ok(seen) => convert::observation(seen, target, place),
                Err(failure) => Err(convert::failure(failure, op, &mask)),
            }))
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
            self.heed(self.call(Op::Delete, Subject::Unwanted(target), body).await?.judged(|answer| {
                match answer {
                    Ok(deletion) => Ok(convert::deletion(deletion)),
                    Err(failure) => Err(convert::failure(failure, Op::Delete, &Mask::default())),
                }
            }))
        })
    }

    fn list_owned<'a>(&'a self, owner: &'a Tags) -> Call<'a, Listing> {
        Box::pin(self.list(Wanted::Owned(owner)))
    }

    fn list_untagged<'a>(&'a self, owner: &'a Tags, prefix: &'a str) -> Call<'a, Listing> {
        Box::pin(self.list(Wanted::Untagged { owner, prefix }))
    }
}
