//! Undoing everything, engine or not, and clearing away records that are over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
};

use chrono::{DateTime, TimeDelta, Utc};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
    core::ApiResource,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    Effects,
    drive::{Outcome, Seen},
    error::{Error, Result},
    objects::{Place, Version},
};
use crate::{
    api::{GovernancePolicy, Intervention, LatencyBudgetPolicy, intervention::Actor, marks::FINALIZER},
    model::{
        effect::InterventionPhase,
        policy::{PolicyKey, PolicyKind},
    },
};

/// Finished records are kept this long.
const KEPT_FOR: TimeDelta = TimeDelta::days(1);

/// At most this many finished records stay in a namespace, the newest.
const KEPT_PER_NAMESPACE: usize = 200;

/// What became of one thing that was to be undone.
#[derive(Debug)]
pub struct Released {
    /// What was undone, for people: the slot of a record, or a policy whose finalizer went.
    pub what: String,
    /// `namespace/name` of the record or policy.
    pub object: String,
    /// How it went.
    pub result: Result<Outcome>,
}

impl Effects {
    /// Undoes the effect of every record in the cluster, then takes our finalizer off the policies that hold nothing
    /// any more. What fails is reported and does not stop the rest.
    ///
    /// No engine needs to run. One that runs would make the effects again: it is to be stopped, or frozen, before.
    pub async fn release_all(&self, now: DateTime<Utc>) -> Result<Vec<Released>> {
        let mut released = Vec::new();
        let mut still_held = BTreeSet::new();
        for stored in self.list::<Intervention>("the Interventions").await? {
            if stored.phase() == InterventionPhase::Restored {
                continue;
            }
            let result = self.release_one(&stored, now).await;
            if result.is_err() {
                still_held.insert(holder_of(&stored));
            }
            let what =
                stored.record().map_or_else(|_| "a slot that cannot be read".to_owned(), |one| one.slot.to_string());
            released.push(Released { what, object: place_of(&stored), result });
        }
        self.release_policies::<LatencyBudgetPolicy>(PolicyKind::LatencyBudgetPolicy, &still_held, &mut released)
            .await?;
        self.release_policies::<GovernancePolicy>(PolicyKind::GovernancePolicy, &still_held, &mut released).await?;
        Ok(released)
    }

    /// Deletes records whose effects are long undone, and the oldest of them where a namespace has too many. Returns
    /// how many went. One that was taken up again meanwhile stays.
    pub async fn sweep(&self, records: &[Arc<Intervention>], now: DateTime<Utc>) -> Result<usize> {
        type Ended<'a> = Vec<(DateTime<Utc>, &'a Arc<Intervention>)>;
        let mut by_namespace: BTreeMap<String, Ended<'_>> = BTreeMap::new();
        for record in records.iter().filter(|record| record.phase() == InterventionPhase::Restored) {
            let ended = record.status.as_ref().and_then(|status| status.restored_at).unwrap_or(record.spec.started_at);
            by_namespace.entry(record.namespace().unwrap_or_default()).or_default().push((ended, record));
        }
        let mut deleted = 0;
        for finished in by_namespace.values_mut() {
            finished.sort_by_key(|(ended, _)| std::cmp::Reverse(*ended));
            for (position, (ended, record)) in finished.iter().enumerate() {
                if position >= KEPT_PER_NAMESPACE || now - *ended > KEPT_FOR {
                    deleted += usize::from(self.delete_record(record).await?);
                }
            }
        }
        Ok(deleted)
    }

    async fn delete_record(&self, record: &Intervention) -> Result<bool> {
        let read = Version::of(record);
        let preconditions = Preconditions { uid: Some(read.uid), resource_version: Some(read.resource_version) };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let api: Api<Intervention> =
            Api::namespaced(self.objects.client().clone(), &record.namespace().unwrap_or_default());
        let name = record.name_any();
        match self.objects.call(|| place_of(record), api.delete(&name, &params)).await {
            Ok(_) => Ok(true),
            Err(Error::Conflict { .. } | Error::Refused { code: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn release_one(&self, stored: &Intervention, now: DateTime<Utc>) -> Result<Outcome> {
        let slot = stored.record().map_err(|problem| Error::Unreadable { record: place_of(stored), problem })?.slot;
        // The record's own epoch: neither fenced by the engine that wrote it, nor fencing the one that comes next.
        let actor = Actor { name: "tradeguard release".to_owned(), epoch: stored.spec.actor.epoch };
        Ok(self.drive(&actor, &slot, None, Some(stored), &Seen::default(), now).await?.outcome)
    }

    async fn release_policies<K>(
        &self,
        kind: PolicyKind,
        still_held: &BTreeSet<PolicyKey>,
        released: &mut Vec<Released>,
    ) -> Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        for policy in self.list::<K>("the policies").await? {
            let (namespace, name) = (policy.namespace().unwrap_or_default(), policy.name_any());
            let key = PolicyKey { kind, namespace: namespace.clone(), name: name.clone() };
            if !policy.finalizers().iter().any(|one| one == FINALIZER) || still_held.contains(&key) {
                continue;
            }
            let others: Vec<&String> = policy.finalizers().iter().filter(|one| *one != FINALIZER).collect();
            let place = Place { resource: ApiResource::erase::<K>(&()), namespace, name };
            let patch = json!({"finalizers": others});
            let result = self.objects.merge_metadata(&place, &Version::of(&policy), patch).await;
            let what = format!("the finalizer of {kind} {key}");
            released.push(Released { what, object: key.to_string(), result: result.map(|()| Outcome::Restored) });
        }
        Ok(())
    }

    async fn list<K>(&self, what: &str) -> Result<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::all(self.objects.client().clone());
        let mut found = Vec::new();
        let mut params = ListParams::default().limit(500);
        loop {
            let page = self.objects.call(|| what.to_owned(), api.list(&params)).await?;
            found.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }
}

fn holder_of(stored: &Intervention) -> PolicyKey {
    let holder = &stored.spec.holder;
    PolicyKey {
        // A record whose holder is of a kind that we do not know holds no policy of those that we know.
        kind: PolicyKind::parse(&holder.kind).unwrap_or(PolicyKind::LatencyBudgetPolicy),
        namespace: holder.namespace.clone(),
        name: holder.name.clone(),
    }
}

fn place_of(stored: &Intervention) -> String {
    format!("{}/{}", stored.namespace().unwrap_or_default(), stored.name_any())
}
