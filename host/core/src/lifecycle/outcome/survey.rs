//! What a list of all machines of a provider says of the machine of one Proxy: at most that nothing has changed.
//! Whatever it shows otherwise, or does not show, is asked for by the pass of that Proxy, when its look is due as if
//! there were no list: an absence is believed of `get` alone, and so is everything that something follows from.

use crate::crd::Phase;
use crate::lifecycle::backoff::spread;
use crate::lifecycle::tags::decisive;
use crate::lifecycle::{Call, Memory, ObjectFacts, Policy};
use crate::provider::Instance;
use crate::time::Moment;

use super::sightings::note_settled;

/// True if lists may stand for looks at this machine: it ran when it was last seen, and its Proxy is Ready.
pub fn is_surveyed(object: &ObjectFacts, memory: &Memory) -> bool {
    let runs = memory.last_seen.as_ref().is_some_and(|seen| seen.running_since.is_some());
    runs && object.status.phase == Phase::Ready
}

/// Takes a list that shows what was there at `as_of`, with `listed` under the id of the machine that was last seen, for
/// a look at it. True if it counts as one: lists may stand for looks at it, it runs as it was last seen, nothing newer
/// is known of it, the last `get` was answered, and it was asked for by itself not too long ago. Else nothing
/// changes.
pub fn seen_in_list(
    object: &ObjectFacts,
    memory: &mut Memory,
    listed: &Instance,
    as_of: Moment,
    policy: &Policy,
) -> bool {
    let asked_within = spread(policy.asked_within, memory.seed, 1);
    let failed = memory.trouble.as_ref().is_some_and(|trouble| trouble.call == Call::Get);
    let may_count = is_surveyed(object, memory) && !failed;
    let Some(seen) = memory.last_seen.as_mut().filter(|_| may_count) else { return false };
    let counts = as_of > seen.at.max(seen.asked)
        && as_of.since(seen.asked) < asked_within
        && looks_like(&seen.instance, listed);
    if counts {
        seen.at = as_of;
        note_settled(memory, policy, as_of);
    }
    counts
}

/// As far as a decision could tell; what was last seen has lost the tags that none needs.
fn looks_like(seen: &Instance, listed: &Instance) -> bool {
    let Instance { id, name, incarnation, state, endpoints, created_at, location, problem, tags } = listed;
    *id == seen.id
        && *name == seen.name
        && *incarnation == seen.incarnation
        && *state == seen.state
        && *endpoints == seen.endpoints
        && *created_at == seen.created_at
        && *location == seen.location
        && problem.is_none()
        && decisive(tags) == seen.tags
}
