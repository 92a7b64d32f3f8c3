//! What decisions do, in the words of the decision table in `docs/lifecycle.md`. Never reads that document: `table`
//! compares the two.
//!
//! A delay is called after what it depends on, for its length says little: two polls may be equally long, and what is
//! left of one may be anything.

use std::time::Duration;

use super::case::Case;
use crate::lifecycle::{
    Action, Admission, Decision, HealthView, MetadataPatch, ObjectFacts, Observed, Policy, ProviderView,
    ProvisionedReason, Purpose, Requeue, Stage, StatusIntent, decide, needs_write, render,
};
use crate::provider::ProviderInfo;

/// The cells of a row that the code fills.
#[derive(Debug)]
pub(super) struct Cells {
    pub(super) effect: String,
    pub(super) next_pass: String,
    pub(super) status: String,
}

/// What this row does in these cases, together.
pub(super) fn cells(row: &str, cases: Vec<Case>) -> Cells {
    let (mut effects, mut passes, mut stages) = (Words::default(), Words::default(), Words::default());
    for case in cases {
        let (case, decision) = settled(row, case);
        effects.add(effect(&case.observed.object, &decision));
        let ends = decision.action == Action::Wait;
        if ends {
            passes.add((next_pass(&case, &decision), None));
        }
        // Nobody sees what a decision says of the status beside another effect.
        if ends || matches!(decision.action, Action::WriteStatus(_)) {
            stages.add(stage(&decision.status));
        }
    }
    if stages.0.is_empty() {
        stages.add(("untouched".to_owned(), None));
    }
    Cells {
        effect: effects.text(" (", ")", ", "),
        next_pass: passes.text("", "", "; "),
        status: stages.text(", ", "", "; "),
    }
}

/// A word, and what it is said of more closely.
type Word = (String, Option<String>);

/// Words in the order in which they came, each once.
#[derive(Debug, Default)]
struct Words(Vec<(String, Vec<String>)>);

impl Words {
    /// What is said more closely of the same word is put together.
    fn add(&mut self, (word, detail): Word) {
        let known =
            self.0.iter_mut().find(|(it, details)| *it == word && details.is_empty() == detail.is_none());
        match (known, detail) {
            (None, detail) => self.0.push((word, detail.into_iter().collect())),
            (Some((_, details)), Some(detail)) if !details.contains(&detail) => details.push(detail),
            (Some(_), Some(_) | None) => {}
        }
    }

    fn text(&self, open: &str, close: &str, between: &str) -> String {
        let text = |(word, details): &(String, Vec<String>)| {
            if details.is_empty() {
                word.clone()
            } else {
                format!("{word}{open}{}{close}", details.join(" or "))
            }
        };
        self.0.iter().map(text).collect::<Vec<_>>().join(between)
    }
}

/// The decision, which must be of this row. One that only writes the status before the row rests is followed there.
fn settled(row: &str, case: Case) -> (Case, Decision) {
    let decision = decided(row, &case);
    if !matches!(decision.action, Action::WriteStatus(_)) {
        return (case, decision);
    }
    let after = case.clone().written();
    let then = after.decide();
    if then.row != row || then.action != Action::Wait {
        return (case, decision);
    }
    let then = decided(row, &after);
    assert_eq!(then.status, decision.status, "{row} rests on something else than it wrote");
    (after, then)
}

/// The decision, whose status is the one that is written, or that the object shows already.
fn decided(row: &str, case: &Case) -> Decision {
    let decision = case.decide();
    assert_eq!(decision.row, row, "{decision:#?}");
    let surroundings = &case.observed.surroundings;
    let health =
        HealthView { configured: surroundings.probe_configured, verdict: surroundings.verdict.as_ref() };
    let object = &case.observed.object;
    let shown = render(object, &decision.status, health, case.now());
    if let Action::WriteStatus(status) = &decision.action {
        assert_eq!(**status, shown, "{row} writes something else than it says");
    }
    if decision.action == Action::Wait {
        assert!(!needs_write(&object.status, &shown), "{row} ends before this is written: {decision:#?}");
    }
    decision
}

fn effect(object: &ObjectFacts, decision: &Decision) -> Word {
    let (word, detail) = match &decision.action {
        Action::Wait if decision.status.stage == Stage::Untouched => ("end", None),
        Action::Wait => ("rest", None),
        Action::LookAgain => ("look at the object", None),
        Action::PatchMetadata(patch) => return (patched(object, patch), None),
        Action::WriteStatus(_) => ("write the status", None),
        Action::ValidateCreate { .. } => ("validate-create", None),
        Action::Get(_) => ("get", None),
        Action::ListOwned(_) => ("list", None),
        Action::AskLeave(ask) => ("ask the ledger", Some(purpose(ask.purpose))),
        Action::Create { .. } => ("create", None),
        Action::Delete { why, .. } => ("delete", Some(*why)),
        Action::RemoveFinalizer(_) => ("remove the finalizer", None),
        Action::Abandon { machine: Some(_), .. } => {
            ("tell which machine stays and remove the finalizer", None)
        }
        Action::Abandon { machine: None, .. } => ("tell it and remove the finalizer", None),
    };
    (word.to_owned(), detail.map(str::to_owned))
}

fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Exchange => "exchange",
        Purpose::Removal => "removal",
        Purpose::Repair => "repair",
        Purpose::Disowned => "disowned",
        Purpose::Surplus => "surplus",
        Purpose::Deletion => "deletion",
    }
}

fn patched(object: &ObjectFacts, patch: &MetadataPatch) -> String {
    let parts = [
        (patch.finalizers != object.finalizers, "finalizer"),
        (patch.spec_hash.is_some(), "hash"),
        (patch.planned_id.is_some(), "planned id"),
        (patch.planned_scope.is_some(), "planned scope"),
    ];
    let parts: Vec<&str> = parts.into_iter().filter_map(|(is, name)| is.then_some(name)).collect();
    format!("write {}", parts.join(" + "))
}

fn stage(intent: &StatusIntent) -> Word {
    let (name, reason) = match &intent.stage {
        Stage::Untouched => ("untouched", None),
        Stage::Creating => ("Creating", None),
        Stage::Provisioning(_) => ("Provisioning", None),
        Stage::Running => ("Running", None),
        Stage::External(problem) => ("External", reason_of(problem.as_ref())),
        Stage::Draining(_) => ("Draining", None),
        Stage::Replacing(_) => ("Replacing", None),
        Stage::Deleting(problem) => ("Deleting", reason_of(problem.as_ref())),
        Stage::Blocked(reason, _) => ("Blocked", Some(*reason)),
        Stage::Kept(note) => ("Kept", reason_of(note.as_ref())),
    };
    let mut details: Vec<&str> = reason.into_iter().map(ProvisionedReason::as_str).collect();
    if intent.latch.is_some() {
        details.push("latched");
    }
    if let (Stage::Blocked(..), Some(machine)) = (&intent.stage, &intent.machine) {
        details.push(if machine.running.is_some() { "shown" } else { "named" });
    }
    (name.to_owned(), (!details.is_empty()).then(|| details.join(", ")))
}

fn reason_of(problem: Option<&(ProvisionedReason, String)>) -> Option<ProvisionedReason> {
    problem.map(|(reason, _)| *reason)
}

fn next_pass(case: &Case, decision: &Decision) -> String {
    match decision.requeue {
        Requeue::Done => "never".to_owned(),
        Requeue::OnChange => "on change".to_owned(),
        Requeue::After(wait) => {
            delay(case).unwrap_or_else(|| panic!("{} waits {wait:?} for no known cause", decision.row))
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Makes something longer.
type Longer = fn(&mut Observed);
/// A duration of the policy.
type Field = fn(&mut Policy) -> &mut Duration;

/// Delays that follow from what is observed.
const CAUSES: [(&str, Longer); 5] = [
    ("back-off", |it| {
        if let Some(held) = &mut it.memory.not_before {
            held.at = held.at + SECOND;
        }
    }),
    ("back-off", |it| it.memory.api_failures += 1),
    ("when it no longer can", |it| of_provider(it, |info| info.longest_call += SECOND)),
    ("drainSeconds", |it| of_provider(it, |info| info.settings.replacement.drain += SECOND)),
    ("when the provider says", |it| {
        for after in it.memory.deletes.values_mut().filter_map(|sent| sent.ask_after.as_mut()) {
            *after += SECOND;
        }
    }),
];

/// Delays that are flags of the operator.
const POLLS: [(&str, Field); 3] = [
    ("provisioning poll", |it| &mut it.provisioning_poll),
    ("deletion poll", |it| &mut it.deletion_poll),
    ("drift poll", |it| &mut it.drift_poll),
];

/// Delays that are fixed, and therefore called by their length.
const FIXED: [Field; 6] = [
    |it| &mut it.slow_poll,
    |it| &mut it.backoff_first,
    |it| &mut it.verdict_wait,
    |it| &mut it.drain_floor,
    |it| &mut it.young_poll,
    |it| &mut it.caps.room_poll,
];

fn of_provider(observed: &mut Observed, change: impl FnOnce(&mut ProviderInfo)) {
    if let ProviderView::Ready(provider) = &mut observed.surroundings.provider {
        change(&mut provider.info);
    }
}

/// What the wait of this case follows from; none if from nothing that is known here.
fn delay(case: &Case) -> Option<String> {
    let cause = || CAUSES.iter().find(|(_, longer)| differs(case, |it, _| longer(it)));
    let poll = || POLLS.iter().find(|(_, field)| differs(case, |_, policy| *field(policy) += SECOND));
    let fixed = || FIXED.iter().find(|field| differs(case, |_, policy| *field(policy) += SECOND));
    turn(case)
        .or_else(|| cause().map(|(name, _)| (*name).to_owned()))
        .or_else(|| poll().map(|(name, _)| (*name).to_owned()))
        .or_else(|| fixed().map(|field| spelled(*field(&mut Policy::default()))))
}

/// True if the wait is another one after this change.
fn differs(case: &Case, change: impl FnOnce(&mut Observed, &mut Policy)) -> bool {
    let (mut observed, mut policy) = (case.observed.clone(), Policy::default());
    let before = decide(&observed, &policy, case.now());
    change(&mut observed, &mut policy);
    let after = decide(&observed, &policy, case.now());
    after.row == before.row && after.requeue != before.requeue
}

/// The wait for the ledger, if it is one, and what bounds it.
fn turn(case: &Case) -> Option<String> {
    let retries = |observed: &mut Observed, change: fn(&mut Duration)| {
        for (_, answer) in &mut observed.pass.answers {
            if let Admission::Refused { retry, .. } = answer {
                change(retry);
            }
        }
    };
    if !differs(case, |it, _| retries(it, |retry| *retry += SECOND)) {
        return None;
    }
    let mut late = case.observed.clone();
    retries(&mut late, |retry| *retry = Duration::from_hours(1));
    match decide(&late, &Policy::default(), case.now()).requeue {
        Requeue::After(wait) if wait < Duration::from_hours(1) => {
            Some(format!("when its turn comes, {} at most", spelled(wait)))
        }
        Requeue::After(_) => Some("when its turn comes".to_owned()),
        Requeue::OnChange | Requeue::Done => None,
    }
}

fn spelled(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds.is_multiple_of(60) { format!("{} min", seconds / 60) } else { format!("{seconds} s") }
}
