//! Kubernetes Events about a Proxy, for `kubectl describe`: which news there is ([`news_of`]), and the telling of it
//! ([`Events`]).
//!
//! Invariants: an Event that cannot be written changes nothing else; the same news about a Proxy is told
//! once as long as it stays the last of its kind; texts are those of conditions, which never hold secrets.

mod telling;

use egress_proxies_core::crd::{ConditionType, Phase, ProxyStatus};
use egress_proxies_core::lifecycle::NOT_PROBED_YET;

pub(crate) use telling::{Events, Sender, Telling};

/// Good or bad news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// All is as it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One piece of news.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct News {
    /// Good or bad.
    pub(crate) kind: Kind,
    /// Constant word, as in conditions.
    pub(crate) reason: String,
    /// What the operator did or tried, a constant word.
    pub(crate) action: &'static str,
    /// For people: no times, counters or secrets.
    pub(crate) note: String,
}

/// The news that a status write is worth: a new phase or a new reason, in the words of the condition that
/// explains it. On the way to Ready these are two; that the first probe is under way is none.
pub(crate) fn news_of(before: &ProxyStatus, after: &ProxyStatus) -> Option<News> {
    if before.phase == after.phase && before.reason == after.reason {
        return news_beside(before, after);
    }
    let beside = || news_beside(before, after).filter(|news| news.kind == Kind::Warning);
    news_in(after).filter(|news| news.reason != NOT_PROBED_YET).or_else(beside)
}

/// What a status says, as news.
pub(crate) fn news_in(status: &ProxyStatus) -> Option<News> {
    let explains = |reason: &str| status.conditions.iter().find(|condition| condition.reason == reason);
    let condition = status.reason.as_deref().and_then(explains).or_else(|| status.conditions.first());
    let reason = status.reason.clone().or_else(|| condition.map(|it| it.reason.clone()))?;
    let (kind, action) = match status.phase {
        Phase::Ready => (Kind::Normal, "Provision"),
        Phase::Unhealthy => (Kind::Warning, "Probe"),
        Phase::Failed => (Kind::Warning, "Provision"),
        Phase::Deleting => (kind_of(&reason), "Delete"),
        Phase::Replacing => (kind_of(&reason), "Replace"),
        Phase::Pending | Phase::Provisioning => (kind_of(&reason), "Provision"),
    };
    let note = condition.map(|it| it.message.clone()).unwrap_or_default();
    Some(News { kind, reason, action, note })
}

/// What changed about the machine of a Proxy that goes on as it was.
fn news_beside(before: &ProxyStatus, after: &ProxyStatus) -> Option<News> {
    let provisioned = |status: &ProxyStatus| {
        let name = ConditionType::Provisioned.as_str();
        status.conditions.iter().find(|condition| condition.type_ == name).cloned()
    };
    let (old, new) = (provisioned(before)?, provisioned(after)?);
    (old.reason != new.reason).then(|| News {
        kind: kind_of(&new.reason),
        reason: new.reason,
        action: "Provision",
        note: new.message,
    })
}

/// Reasons of ordinary progress; any other deserves a look.
fn kind_of(reason: &str) -> Kind {
    match reason {
        "Creating" | "Provisioning" | "Created" | "ExternalEndpoint" | "Draining" | "Replacing"
        | "Deleting" | "ReplacementPending" => Kind::Normal,
        _ => Kind::Warning,
    }
}

#[cfg(test)]
mod tests {
    use egress_proxies_core::crd::ProxyStatus;
    use serde_json::json;

    use super::*;

    fn status(reason: &str) -> ProxyStatus {
        let condition = |kind: &str, reason: &str| {
            json!({
                "type": kind, "status": "True", "reason": reason, "message": format!("about {reason}"),
                "lastTransitionTime": "2026-01-01T00:00:00Z"
            })
        };
        let conditions = [condition("Provisioned", reason), condition("Ready", "ProbeSucceeded")];
        serde_json::from_value(
            json!({"phase": "Ready", "reason": "ProbeSucceeded", "conditions": conditions}),
        )
        .unwrap()
    }

    fn way(phase: &str, reason: &str) -> ProxyStatus {
        ProxyStatus {
            phase: serde_json::from_value(json!(phase)).unwrap(),
            reason: Some(reason.to_owned()),
            ..status(if reason == NOT_PROBED_YET { "Created" } else { reason })
        }
    }

    #[test]
    fn each_step_of_a_proxy_is_told_once_and_as_a_warning_only_if_somebody_should_look() {
        let steps = [
            ("Provisioning", "Provisioning", Some(Kind::Normal)),
            ("Provisioning", "NotProbedYet", None),
            ("Ready", "ProbeSucceeded", Some(Kind::Normal)),
            ("Ready", "ProbeSucceeded", None),
            ("Unhealthy", "ProbeTimeout", Some(Kind::Warning)),
            ("Ready", "ProbeSucceeded", Some(Kind::Normal)),
            ("Replacing", "Draining", Some(Kind::Normal)),
            ("Replacing", "Replacing", Some(Kind::Normal)),
            ("Provisioning", "QuotaExceeded", Some(Kind::Warning)),
            ("Failed", "PermanentError", Some(Kind::Warning)),
            ("Deleting", "Deleting", Some(Kind::Normal)),
            ("Deleting", "ProviderUnavailable", Some(Kind::Warning)),
            ("Deleting", "NameConflict", Some(Kind::Warning)),
            ("Deleting", "Abandoned", Some(Kind::Warning)),
        ];
        let mut before = ProxyStatus::default();
        for (phase, reason, told) in steps {
            let after = way(phase, reason);
            let news = news_of(&before, &after);
            assert_eq!(news.as_ref().map(|news| news.kind), told, "{phase} {reason}");
            assert!(news.is_none_or(|news| news.reason == reason), "{phase} {reason}");
            before = after;
        }
    }

    #[test]
    fn a_proxy_that_goes_on_tells_what_is_new_about_its_machine() {
        let told = |before: &str, after: &str| news_of(&status(before), &status(after));
        for (reason, kind) in [
            ("ReplacementPending", Kind::Normal),
            ("ReplacementPaused", Kind::Warning),
            ("FleetSuspect", Kind::Warning),
            ("ProviderUnavailable", Kind::Warning),
        ] {
            let news = told("Created", reason).unwrap();
            assert_eq!((news.kind, news.reason.as_str()), (kind, reason));
            assert_eq!(news.note, format!("about {reason}"));
            assert_eq!(told(reason, reason), None);
        }
        assert_eq!(told("FleetSuspect", "Created").unwrap().kind, Kind::Normal);
        let not_probed = |reason: &str| {
            let mut after = status(reason);
            (after.phase, after.reason) = (Phase::Provisioning, Some("NotProbedYet".to_owned()));
            news_of(&status("ExternalEndpoint"), &after).map(|news| news.reason)
        };
        assert_eq!(not_probed("AuthError").as_deref(), Some("AuthError"), "trouble beside the first probe");
        assert_eq!(not_probed("Created"), None);
    }
}
