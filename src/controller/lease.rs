//! Who acts: one instance at a time, by a Lease.
//!
//! The rules that keep two from acting: a holder stops when its last renewal is two thirds of a lease old by its own
//! monotonic clock; a successor waits a whole lease from when *it* saw the last renewal, so clocks are never
//! compared between machines; the epoch (`leaseTransitions`) goes into every record, whose write is guarded.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::clock::Clock;

/// Which Lease, and how long it lasts.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// How long a holder that stopped renewing keeps it; whole seconds, at least one.
    pub duration: Duration,
}

impl Options {
    /// How old the last renewal may be while the holder still acts.
    fn renew_deadline(&self) -> Duration {
        self.duration * 2 / 3
    }

    fn retry_period(&self) -> Duration {
        self.duration / 5
    }
}

/// What this instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Another instance acts; this one is warm.
    Standby,
    /// This instance acts, under this epoch.
    Actor {
        /// Number of times the Lease changed hands.
        epoch: i64,
    },
    /// The API server cannot be reached: judges and serves from what it last knew, starts nothing.
    Detached,
}

/// Campaigns for the Lease and publishes the role.
pub(crate) struct Campaign {
    api: Api<Lease>,
    options: Options,
    identity: String,
    clock: Clock,
    /// The last state of the Lease that was seen, and when by our own monotonic clock.
    seen: Option<Seen>,
    /// When our last renewal was *started*: its success counts from there.
    renewed: Option<Duration>,
    /// Since when the API server does not answer.
    silent_since: Option<Duration>,
    role: watch::Sender<Role>,
}

struct Seen {
    version: String,
    at: Duration,
    lease: Lease,
}

impl Campaign {
    pub(crate) fn new(client: Client, options: Options, identity: String, clock: Clock) -> Self {
        let api = Api::namespaced(client, &options.namespace);
        Self {
            api,
            options,
            identity,
            clock,
            seen: None,
            renewed: None,
            silent_since: None,
            role: watch::Sender::new(Role::Standby),
        }
    }

    pub(crate) fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    /// Runs until cancelled, then gives the Lease up.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        loop {
            let started = self.clock.monotonic();
            let round = self.patience(started);
            match tokio::time::timeout(self.clock.real(round), self.attempt(started)).await {
                Ok(Ok(role)) => {
                    self.silent_since = None;
                    self.become_role(role);
                }
                Ok(Err(error)) => {
                    debug!(%error, "the lease could not be read or written");
                    self.after_failure(started, !matches!(error, kube::Error::Api(_)));
                }
                Err(_) => self.after_failure(started, true),
            }
            let pause = self.pause();
            tokio::select! {
                () = cancel.cancelled() => break,
                () = self.clock.sleep(pause) => {}
            }
        }
        self.give_up().await;
    }

    /// How long an attempt may take: an actor whose renewal hangs must stop in time.
    fn patience(&self, now: Duration) -> Duration {
        let deadline = self.options.renew_deadline();
        let left = self.renewed.map_or(deadline, |renewed| (renewed + deadline).saturating_sub(now));
        left.max(Duration::from_millis(10))
    }

    /// While acting, wakes at the latest when the renewal gets too old.
    fn pause(&self) -> Duration {
        let retry = self.options.retry_period();
        match self.renewed {
            Some(renewed) => {
                let left = (renewed + self.options.renew_deadline()).saturating_sub(self.clock.monotonic());
                retry.min(left.max(Duration::from_millis(10)))
            }
            None => retry,
        }
    }

    fn after_failure(&mut self, started: Duration, unreachable: bool) {
        let now = self.clock.monotonic();
        if self.renewed.is_some_and(|renewed| now.saturating_sub(renewed) >= self.options.renew_deadline()) {
            self.renewed = None;
        }
        if unreachable {
            let since = *self.silent_since.get_or_insert(started);
            let long = now.saturating_sub(since) >= self.options.renew_deadline();
            if self.renewed.is_none() && (long || matches!(*self.role.borrow(), Role::Actor { .. })) {
                self.become_role(Role::Detached);
            }
        } else if self.renewed.is_none() {
            self.become_role(Role::Standby);
        }
    }

    fn become_role(&mut self, role: Role) {
        let changed = self.role.send_if_modified(|current| {
            let differs = *current != role;
            *current = role;
            differs
        });
        if changed {
            match role {
                Role::Actor { epoch } => info!(identity = %self.identity, epoch, "acting"),
                Role::Standby => info!(identity = %self.identity, "standing by"),
                Role::Detached => warn!(identity = %self.identity, "detached: the API server cannot be reached"),
            }
        }
    }

    /// One look at the Lease, and one write if it is ours or free.
    async fn attempt(&mut self, started: Duration) -> Result<Role, kube::Error> {
        let Some(lease) = self.api.get_opt(&self.options.name).await? else {
            return self.take(None, started).await;
        };
        self.see(&lease, started);
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        if holder == self.identity && self.renewed.is_some() {
            return self.renew(lease, started).await;
        }
        let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lasts = lasts.map_or(self.options.duration, Duration::from_secs);
        let quiet_for = self.seen.as_ref().map_or(Duration::ZERO, |seen| started.saturating_sub(seen.at));
        // Our own name without our renewal: we were restarted. The old process is gone, since names are per
        // process; waiting costs a lease but never lets two act.
        if holder.is_empty() || quiet_for >= lasts {
            return self.take(Some(lease), started).await;
        }
        self.renewed = None;
        Ok(Role::Standby)
    }

    fn see(&mut self, lease: &Lease, at: Duration) {
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        if self.seen.as_ref().is_none_or(|seen| seen.version != version) {
            self.seen = Some(Seen { version, at, lease: lease.clone() });
        }
    }

    async fn take(&mut self, found: Option<Lease>, started: Duration) -> Result<Role, kube::Error> {
        let transitions =
            found.as_ref().and_then(|lease| lease.spec.as_ref()?.lease_transitions).unwrap_or(0).saturating_add(1);
        let stamp = self.stamp();
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.options.duration.as_secs()).ok(),
            acquire_time: stamp.clone(),
            renew_time: stamp,
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        };
        let written = match found {
            Some(mut lease) => {
                lease.spec = Some(spec);
                self.api.replace(&self.options.name, &PostParams::default(), &lease).await
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.options.name.clone()), ..ObjectMeta::default() };
                self.api.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await
            }
        };
        self.settle(written, started)
    }

    async fn renew(&mut self, mut lease: Lease, started: Duration) -> Result<Role, kube::Error> {
        let stamp = self.stamp();
        lease.spec.get_or_insert_default().renew_time = stamp;
        let written = self.api.replace(&self.options.name, &PostParams::default(), &lease).await;
        self.settle(written, started)
    }

    fn settle(&mut self, written: Result<Lease, kube::Error>, started: Duration) -> Result<Role, kube::Error> {
        match written {
            Ok(lease) => {
                self.renewed = Some(started);
                self.see(&lease, started);
                let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
                Ok(Role::Actor { epoch: i64::from(transitions) })
            }
            // Somebody was faster: look again next round.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                self.renewed = None;
                Ok(Role::Standby)
            }
            Err(error) => Err(error),
        }
    }

    fn stamp(&self) -> Option<MicroTime> {
        Timestamp::from_microsecond(self.clock.now().timestamp_micros()).ok().map(MicroTime)
    }

    /// Lets the successor start at once.
    async fn give_up(&mut self) {
        let Some(seen) = self.seen.take().filter(|_| self.renewed.is_some()) else { return };
        self.become_role(Role::Standby);
        let mut lease = seen.lease;
        lease.spec.get_or_insert_default().holder_identity = Some(String::new());
        let params = PostParams::default();
        let release = self.api.replace(&self.options.name, &params, &lease);
        if let Ok(Err(error)) = tokio::time::timeout(self.clock.real(self.options.retry_period()), release).await {
            debug!(%error, "the lease could not be given up; it will run out");
        }
    }
}
