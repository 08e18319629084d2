//! Telling people and platforms: Kubernetes Events on the policy, CloudEvents to the sinks.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tracing::{debug, warn};

use crate::api::AnyPolicy;
use crate::api::marks::FIELD_MANAGER;
use crate::controller::engine::{Done, Engine};
use crate::decide::Judgement;
use crate::effects::notify::{CloudEvent, EffectData, TransitionData};
use crate::effects::{Driven, Outcome};
use crate::model::phase::{Phase, Transition};
use crate::model::policy::{Action, PolicyKey};
use crate::model::quantity;
use crate::model::reason::Reason;
use crate::model::slot::Slot;

impl Engine {
    /// A policy moved.
    pub(crate) fn announce(
        &mut self,
        key: &PolicyKey,
        transition: &Transition,
        judgement: &Judgement,
        now: DateTime<Utc>,
    ) {
        let Some(governed) = self.registry.get(key) else { return };
        let Some(change) = governed.history.last().cloned() else { return };
        let target = &governed.object.core().target_ref;
        let threshold = change
            .signal
            .as_ref()
            .and_then(|name| Some(governed.entry.as_ref()?.policy.signals.get(name)?.threshold.as_ref()?.value));
        let message = in_words(transition, &change, governed);
        let data = TransitionData {
            policy_kind: key.kind.to_string(),
            tenant: governed.tenant.name.clone(),
            target: format!("{}/{}", target.kind, target.name),
            from: transition.from.to_string(),
            to: transition.to.to_string(),
            stage: transition.stage.map(|stage| format!("{stage:?}")),
            reason: transition.reason.to_string(),
            message: message.clone(),
            severity: format!("{:?}", judgement.verdict.severity).to_lowercase(),
            signal: change.signal.clone(),
            value: change.value,
            threshold,
            unit: change.unit.clone(),
            revision: change.revision.clone().unwrap_or_default(),
            decision_id: judgement.decision_id.clone(),
            episode: judgement.state.episode.clone(),
        };
        let event = CloudEvent::transition(&self.parts.options.event_source, key, now, &data);
        self.send(key, event);
        let warning = matches!(transition.to, Phase::Active) || transition.reason == Reason::ProbeFailed;
        self.record_event(key, warning, transition.reason, "Judge", message);
    }

    /// An effect was made, undone, or is contested.
    pub(crate) fn announce_effect(&mut self, slot: &Slot, key: &PolicyKey, driven: &Driven, now: DateTime<Utc>) {
        let (reason, verb) = match driven.outcome {
            Outcome::Applied => (Reason::Applied, "applied"),
            Outcome::Reasserted => (Reason::Applied, "asserted again"),
            Outcome::Restored => (Reason::Restored, "restored"),
            Outcome::ObjectGone => (Reason::ObjectGone, "gone with its object"),
            Outcome::Contested => (Reason::Contested, "contested"),
            Outcome::Unchanged | Outcome::Waiting(_) => return,
        };
        let message = format!("{slot} {verb}");
        let governed = self.registry.get(key);
        let record = self.slots.records().get(slot);
        let data = EffectData {
            policy_kind: key.kind.to_string(),
            tenant: record.map(|record| record.holder.tenant.clone()).unwrap_or_default(),
            action: record.map(|record| record.holder.action.to_string()).unwrap_or_default(),
            slot: slot.kind().to_owned(),
            on: slot.to_string(),
            outcome: reason.to_string(),
            reason: reason.to_string(),
            message: message.clone(),
            intervention: format!("{}/{}", slot.namespace(), crate::api::intervention::name_of(slot)),
            revision: governed.and_then(crate::controller::governed::Governed::revision).unwrap_or_default(),
            // One effect of an episode may be made, taken back and made again: the record's version tells them apart.
            decision_id: driven.record.as_ref().and_then(kube::ResourceExt::resource_version).unwrap_or_default(),
            episode: record.map(|record| record.holder.episode.clone()).unwrap_or_default(),
        };
        let event = CloudEvent::effect(&self.parts.options.event_source, key, now, &data);
        self.send(key, event);
        self.record_event(key, reason == Reason::Contested, reason, "Act", message);
    }

    fn send(&mut self, key: &PolicyKey, event: CloudEvent) {
        if !self.acts() {
            return;
        }
        let mut sinks: BTreeSet<String> = self.parts.options.default_sinks.clone();
        if let Some(entry) = self.registry.get(key).and_then(|governed| governed.entry.as_ref()) {
            sinks.extend(entry.policy.actions.iter().filter_map(|action| match action {
                Action::Notify { sink } => Some(sink.clone()),
                _ => None,
            }));
        }
        if sinks.is_empty() {
            return;
        }
        let outbox = Arc::clone(&self.parts.outbox);
        self.tasks.spawn(async move {
            for sink in sinks {
                if let Err(error) = outbox.put(&sink, &event).await {
                    warn!(%error, sink, id = %event.id, "an event was not kept");
                }
            }
            Done::Nothing
        });
    }

    pub(crate) fn record_event(&mut self, key: &PolicyKey, warning: bool, reason: Reason, action: &str, note: String) {
        if !self.acts() {
            return;
        }
        let Some(governed) = self.registry.get(key) else { return };
        let reference = match &governed.object {
            AnyPolicy::LatencyBudget(policy) => policy.object_ref(&()),
            AnyPolicy::Governance(policy) => policy.object_ref(&()),
        };
        let event = Event {
            type_: if warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_string(),
            note: Some(note),
            action: action.to_owned(),
            secondary: None,
        };
        let reporter =
            Reporter { controller: FIELD_MANAGER.into(), instance: Some(self.parts.options.identity.clone()) };
        let recorder = Recorder::new(self.parts.client.clone(), reporter);
        self.tasks.spawn(async move {
            if let Err(error) = recorder.publish(&event, &reference).await {
                debug!(%error, "an Event was not written");
            }
            Done::Nothing
        });
    }
}

fn in_words(
    transition: &Transition,
    change: &crate::api::policy_status::Change,
    governed: &crate::controller::governed::Governed,
) -> String {
    let stage = transition.stage.map(|stage| format!(" ({stage:?})")).unwrap_or_default();
    let because = transition.reason.meaning().trim();
    let measured = change.signal.as_ref().zip(change.value).and_then(|(name, value)| {
        let signal = governed.entry.as_ref()?.policy.signals.get(name)?;
        let threshold = signal.threshold.as_ref()?;
        Some(format!(" {name} {} against {}.", quantity::show(value, threshold.unit), threshold.written))
    });
    format!("{} → {}{stage}: {because}{}", transition.from, transition.to, measured.unwrap_or_default())
}
