//! Beginning to act: what stands is read from the API server, not from caches that may be behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tracing::{info, warn};

use crate::api::{AnyPolicy, GovernancePolicy, Intervention, LatencyBudgetPolicy};
use crate::controller::engine::{Engine, TakenOver};
use crate::model::phase::State;
use crate::model::policy::PolicyKey;

/// What was read, for the epoch it was read for.
pub(crate) struct Taken {
    epoch: i64,
    read: Result<Standing, kube::Error>,
}

struct Standing {
    policies: Vec<AnyPolicy>,
    interventions: Vec<Intervention>,
}

/// Reads policies and records.
pub(crate) async fn read(client: Client, epoch: i64) -> Taken {
    let read = async {
        let interventions = Api::<Intervention>::all(client.clone()).list(&ListParams::default()).await?.items;
        let latency = Api::<LatencyBudgetPolicy>::all(client.clone()).list(&ListParams::default()).await?.items;
        let governance = Api::<GovernancePolicy>::all(client).list(&ListParams::default()).await?.items;
        let latency = latency.into_iter().map(|policy| AnyPolicy::from(Arc::new(policy)));
        let governance = governance.into_iter().map(|policy| AnyPolicy::from(Arc::new(policy)));
        Ok(Standing { policies: latency.chain(governance).collect(), interventions })
    };
    Taken { epoch, read: read.await }
}

impl Engine {
    pub(crate) fn take_over(&mut self, taken: Taken, now: DateTime<Utc>) {
        if self.taken_over != TakenOver::Reading || self.actor().is_none_or(|actor| actor.epoch != taken.epoch) {
            return;
        }
        let standing = match taken.read {
            Ok(standing) => standing,
            Err(error) => {
                warn!(%error, "what stands could not be read; trying again");
                // The next look at the role starts over; not at once, so that a failing server is not hammered.
                let client = self.parts.client.clone();
                let (clock, epoch) = (self.parts.clock, taken.epoch);
                self.tasks.spawn(async move {
                    clock.sleep(Duration::from_secs(1)).await;
                    super::engine::Done::TakenOver(Box::new(read(client, epoch).await))
                });
                return;
            }
        };
        let states: BTreeMap<PolicyKey, (String, Option<State>)> = standing
            .policies
            .iter()
            .map(|policy| (policy.key(), (policy.uid().to_owned(), policy.status().state())))
            .collect();
        for (key, (uid, state)) in &states {
            let Some(governed) = self.registry.get_mut(key).filter(|governed| governed.object.uid() == uid) else {
                continue;
            };
            governed.state = state.clone().unwrap_or_else(|| State::new(now));
            governed.report.written = None;
            governed.resolved = None;
            self.registry.persist(key, state.clone());
        }
        for key in states.keys() {
            self.registry.want_report(key);
        }
        let standing_effects = standing.interventions.len();
        self.slots.replace(standing.interventions);
        self.taken_over = TakenOver::Yes(taken.epoch);
        self.keep_mirrors(now);
        self.review_mirrors(now);
        self.keep_revisions();
        self.source_status.want_all(self.parts.caches.policy_sources.all().iter().map(|source| source.name_any()));
        self.replan = true;
        self.all_gates = true;
        info!(epoch = taken.epoch, policies = states.len(), records = standing_effects, "acting on what stands");
    }
}
