//! Which request for another machine (annotation `crawl.example.com/replace`) was taken up, and which machine
//! goes because of it. Written together with the first status that says so, so that a crash at any point
//! neither forgets a request nor carries it out twice.

use crate::crd::ProxyStatus;

use super::{ObjectFacts, RecordedMachine, Stage, StatusIntent};

/// Carries the two fields over, and changes them where the stage does.
pub(super) fn mark(object: &ObjectFacts, intent: &StatusIntent, status: &mut ProxyStatus) {
    let old = &object.status;
    status.replace_nonce.clone_from(&old.replace_nonce);
    status.replacing.clone_from(&old.replacing);
    let asked = &object.replace_nonce;
    match (&intent.stage, &intent.machine) {
        // The machine that goes is named; whatever it goes for, the next one is a new one.
        (Stage::Draining(_) | Stage::Replacing(_), Some(machine)) => {
            if asked.is_some() && asked != &old.replace_nonce {
                status.replace_nonce.clone_from(asked);
                status.replacing = Some(identity_of(machine));
            }
        }
        // There is none any more: what went is gone.
        (Stage::Creating | Stage::Replacing(_) | Stage::Blocked(..), None) => status.replacing = None,
        (Stage::Provisioning(_) | Stage::Running, Some(machine)) => {
            let same = old.provider_id.as_deref() == Some(machine.id.as_str())
                && (machine.incarnation.is_none()
                    || old.incarnation.is_none()
                    || old.incarnation == machine.incarnation.as_ref().map(ToString::to_string));
            if !same {
                status.replacing = None;
                if asked.is_some() {
                    status.replace_nonce.clone_from(asked);
                }
            }
        }
        (Stage::Provisioning(_) | Stage::Running | Stage::Draining(_), None)
        | (Stage::Creating | Stage::Blocked(..), Some(_))
        | (Stage::Untouched | Stage::Kept(_) | Stage::Deleting(_) | Stage::External(_), _) => {}
    }
}

fn identity_of(machine: &RecordedMachine) -> String {
    machine.incarnation.as_ref().map_or_else(|| machine.id.to_string(), ToString::to_string)
}
