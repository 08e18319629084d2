//! The loop: takes in what changed, starts what is due, and takes in what came of it.
//!
//! It alone holds the state; everything that waits for somebody else runs as a task beside it and comes back as a
//! [`Done`], so no backend and no object makes the others wait. What a policy may have effects for is what its status
//! says ([`Governed::persisted`]), so the order on disk is: status, record, effect.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::Client;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::api::marks::FREEZE_CONFIG_MAP;
use crate::clock::Clock;
use crate::controller::changes::Marks;
use crate::controller::definitions::Definitions;
use crate::controller::fetching::{self, Fetches};
use crate::controller::governed::Registry;
use crate::controller::lease::Role;
use crate::controller::mirror::{self, Mirrors};
use crate::controller::options::Options;
use crate::controller::publish::Draft;
use crate::controller::slots::Slots;
use crate::controller::source_status::{self, SourceStatus};
use crate::controller::tenancy::Tenancy;
use crate::controller::watches::Caches;
use crate::controller::{report, review, round, sourcing, takeover};
use crate::decide::{Freeze, Plan};
use crate::effects::outbox::Outbox;
use crate::effects::{self, Actor, Effects};
use crate::model::policy::PolicyKey;
use crate::model::view::View;
use crate::rego::Rule;
use crate::signals::Signals;
use crate::telemetry::metrics::Metrics;

/// Key of the freeze ConfigMap: `new`, `all` or `off`.
const FREEZE_KEY: &str = "mode";

/// What reconciles, in metrics and logs: the loop itself, the writing of policies' status, the driving of slots.
pub(crate) const LOOP: &str = "policy";
pub(crate) const STATUS: &str = "status";
pub(crate) const SLOT: &str = "slot";

/// What a loop is made of.
pub(crate) struct Parts {
    pub(crate) client: Client,
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    pub(crate) caches: Arc<Caches>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) effects: Arc<Effects>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) view: watch::Sender<Arc<View>>,
    pub(crate) role: watch::Receiver<Role>,
    pub(crate) random: fastrand::Rng,
    /// The rule that judges latency budgets: the shipped one, unless somebody replaces it while the engine runs.
    pub(crate) latency_rule: watch::Receiver<Rule>,
}

/// The loop and all that it knows.
pub(crate) struct Engine {
    pub(crate) parts: Parts,
    pub(crate) registry: Registry,
    pub(crate) tenancy: Tenancy,
    /// What sources define.
    pub(crate) definitions: Definitions,
    pub(crate) mirrors: Mirrors,
    pub(crate) source_status: SourceStatus,
    /// What is known of sources' repositories.
    pub(crate) fetches: Fetches,
    /// Sources are to be looked at once every cache is filled: a part is judged by its tenant and its kept revisions too.
    pub(crate) sources_wait: bool,
    /// When the next pin of a source ends.
    pub(crate) pin_end: Option<DateTime<Utc>>,
    pub(crate) slots: Slots,
    pub(crate) plan: Arc<Plan>,
    pub(crate) shown: Draft,
    pub(crate) freeze: Freeze,
    /// Something that the plan is made of changed.
    pub(crate) replan: bool,
    pub(crate) taken_over: TakenOver,
    /// Namespaces whose Pods may wait for their readiness gate.
    gates: BTreeSet<String>,
    pub(crate) all_gates: bool,
    role_shown: Option<Role>,
    pub(crate) detached_since: Option<DateTime<Utc>>,
    /// One for each status that may still be written at the same time.
    pub(crate) report_permits: Arc<Semaphore>,
    pub(crate) tasks: JoinSet<Done>,
}

/// Whether the states in memory are those of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakenOver {
    /// Not yet, or no longer.
    No,
    /// Being read.
    Reading,
    /// As of this epoch.
    Yes(i64),
}

/// What came of a task.
pub(crate) enum Done {
    /// Policies were measured and judged.
    Judged(Vec<round::Judged>),
    /// A policy's own rule was compiled.
    Compiled(Box<review::Compiled>),
    /// The scale subresources of targets were read.
    Scales(Vec<round::Scale>),
    /// A status was written, or not.
    Reported(Box<report::Reported>),
    /// A slot was driven.
    Driven(Box<super::act::Finished>),
    /// The cluster's states were read.
    TakenOver(Box<takeover::Taken>),
    /// A record was read; none: there is none.
    Record(Box<(crate::model::slot::Slot, Option<crate::api::Intervention>)>),
    /// A revision of a part of a source was read and compiled, or not.
    Tried(Box<sourcing::Tried>),
    /// A repository was looked at.
    Fetched(Box<fetching::Fetched>),
    /// A mirror was written, or not.
    Mirrored(Box<mirror::Mirrored>),
    /// The status of a source was written, or not.
    SourceStatus(Box<source_status::Written>),
    /// Look at a policy again.
    Look(PolicyKey),
    /// Look at the status of a source again.
    LookAtSource(String),
    /// Nothing to take in.
    Nothing,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Self {
        for controller in [LOOP, STATUS, SLOT] {
            parts.metrics.controller(controller);
        }
        parts.metrics.queue_added(LOOP, 0);
        Self {
            tenancy: Tenancy::read(&parts.caches),
            parts,
            registry: Registry::default(),
            definitions: Definitions::default(),
            mirrors: Mirrors::default(),
            source_status: SourceStatus::default(),
            fetches: Fetches::default(),
            sources_wait: true,
            pin_end: None,
            slots: Slots::default(),
            plan: Arc::default(),
            shown: Draft::default(),
            freeze: Freeze::default(),
            replan: false,
            taken_over: TakenOver::No,
            gates: BTreeSet::new(),
            all_gates: true,
            role_shown: None,
            detached_since: None,
            report_permits: Arc::new(Semaphore::new(report::AT_ONCE)),
            tasks: JoinSet::new(),
        }
    }

    /// Runs until cancelled. What stands, stands: the next actor goes on from the records.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        let mut sweep = self.parts.clock.now();
        loop {
            let (marks, waited) = self.parts.caches.changes.take();
            self.parts.metrics.queue_taken(LOOP, &waited);
            self.absorb(&marks);
            let now = self.parts.clock.now();
            if self.parts.caches.are_synced() {
                self.follow_role(now);
                let pin_ended = self.pin_end.is_some_and(|end| end <= now);
                if std::mem::take(&mut self.sources_wait) || pin_ended {
                    self.look_at_all_parts(now);
                }
                self.start_fetches(now);
                self.start_rounds(now);
                if self.acts() {
                    self.open_gates(now);
                    if std::mem::take(&mut self.replan) {
                        self.make_plan(now);
                    }
                    self.start_slots(now);
                    self.start_reports(now);
                    self.start_source_status(now);
                    if sweep <= now {
                        sweep = now + Duration::from_secs(600);
                        self.start_sweep(now);
                    }
                }
            }
            self.publish();
            let pause = self.pause(now, sweep);
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.take_in(done),
                () = self.parts.caches.changes.marked() => {}
                changed = self.parts.role.changed() => if changed.is_err() { break },
                Ok(()) = self.parts.latency_rule.changed() => self.rule_replaced(self.parts.clock.now()),
                () = self.parts.clock.sleep(pause) => {}
            }
            // Whatever else is ready is taken in before the next look at the whole.
            while let Some(done) = self.tasks.try_join_next() {
                self.take_in(done);
            }
        }
        self.finish().await;
    }

    /// Writes under way may end; nothing new starts.
    async fn finish(mut self) {
        let limit = self.parts.clock.real(Duration::from_secs(5));
        let rest = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(limit, rest).await.is_err() {
            debug!("writes under way were cut off; the next actor finishes them");
        }
    }

    /// Whether this instance may write.
    pub(crate) fn acts(&self) -> bool {
        matches!((*self.parts.role.borrow(), self.taken_over), (Role::Actor { epoch }, TakenOver::Yes(of)) if epoch == of)
    }

    /// Whether this instance judges: the actor does, and everyone who is cut off.
    pub(crate) fn judges(&self) -> bool {
        self.acts() || (*self.parts.role.borrow() == Role::Detached)
    }

    pub(crate) fn actor(&self) -> Option<Actor> {
        match *self.parts.role.borrow() {
            Role::Actor { epoch } => Some(Actor { name: self.parts.options.identity.clone(), epoch }),
            _ => None,
        }
    }

    fn follow_role(&mut self, now: DateTime<Utc>) {
        let role = *self.parts.role.borrow_and_update();
        self.parts.metrics.leader(&self.parts.options.lease.name, matches!(role, Role::Actor { .. }));
        self.parts.metrics.detached(role == Role::Detached);
        if self.role_shown != Some(role) {
            self.role_shown = Some(role);
            self.show_rest();
        }
        self.detached_since = match role {
            Role::Detached => self.detached_since.or(Some(now)),
            _ => None,
        };
        match (role, self.taken_over) {
            (Role::Actor { .. }, TakenOver::Reading) => {}
            (Role::Actor { epoch }, TakenOver::Yes(of)) if of == epoch => {}
            (Role::Actor { epoch }, _) => {
                info!(epoch, "reading what stands before acting");
                self.taken_over = TakenOver::Reading;
                let client = self.parts.client.clone();
                self.tasks.spawn(async move { Done::TakenOver(Box::new(takeover::read(client, epoch).await)) });
            }
            _ => self.taken_over = TakenOver::No,
        }
    }

    fn take_in(&mut self, done: Result<Done, tokio::task::JoinError>) {
        let now = self.parts.clock.now();
        match done {
            Ok(Done::Judged(judged)) => self.judged(judged, now),
            Ok(Done::Compiled(compiled)) => self.compiled(*compiled, now),
            Ok(Done::Scales(scales)) => self.scales(scales),
            Ok(Done::Reported(reported)) => self.reported(*reported, now),
            Ok(Done::Driven(finished)) => self.driven(*finished, now),
            Ok(Done::TakenOver(taken)) => self.take_over(*taken, now),
            Ok(Done::Record(read)) => self.record_read(&read.0, read.1.as_ref()),
            Ok(Done::Tried(tried)) => self.tried(*tried, now),
            Ok(Done::Fetched(fetched)) => self.fetched(*fetched, now),
            Ok(Done::Mirrored(mirrored)) => self.mirrored(*mirrored, now),
            Ok(Done::SourceStatus(written)) => self.source_status_written(*written),
            Ok(Done::Look(key)) => self.reconcile(&key, now),
            Ok(Done::LookAtSource(source)) => self.source_status.want(&source),
            Ok(Done::Nothing) => {}
            // A task that panicked is a defect; its object stays as it is until something touches it again.
            Err(problem) => {
                error!(%problem, "a task failed");
                self.parts.metrics.reconcile_panic(LOOP);
            }
        }
    }

    fn absorb(&mut self, marks: &Marks) {
        if *marks == Marks::default() {
            return;
        }
        let now = self.parts.clock.now();
        if marks.freeze || marks.everything {
            self.freeze = self.read_freeze();
            self.replan = true;
        }
        if marks.tenants || marks.everything {
            self.tenancy = Tenancy::read(&self.parts.caches);
            self.parts.metrics.tenants(self.tenancy.names());
        }
        for (namespace, name) in &marks.interventions {
            self.slots.refresh(&self.parts.caches, namespace, name);
            self.replan = true;
        }
        if marks.everything {
            self.slots.refresh_all(&self.parts.caches);
        }
        // What sources define comes first: it decides which objects are mirrors.
        if marks.tenants || marks.sources || marks.everything {
            self.look_at_all_parts(now);
        } else {
            for (namespace, name) in &marks.config_maps {
                self.look_at_config_map(namespace, name, now);
            }
        }
        self.list_revisions(&marks.revisions);
        if marks.freeze {
            self.keep_mirrors(now);
        }
        if marks.everything || !marks.interventions.is_empty() {
            // One that stands by makes no plan, and tells the modes of targets all the same.
            self.show_rest();
        }
        if marks.tenants || marks.everything {
            self.review_all(now);
        } else {
            for key in &marks.policies {
                self.reconcile(key, now);
            }
        }
        self.forget_facts(&marks.namespaces, marks.everything);
    }

    /// Facts of these namespaces are made anew when next needed; slots there are looked at again.
    fn forget_facts(&mut self, namespaces: &BTreeSet<String>, everything: bool) {
        if namespaces.is_empty() && !everything {
            return;
        }
        if everything {
            self.registry.forget_all_facts();
        } else {
            for namespace in namespaces {
                self.registry.forget_facts_in(namespace);
            }
        }
        self.slots.recheck(|namespace| everything || namespaces.contains(namespace));
        self.gates.extend(namespaces.iter().cloned());
        self.all_gates |= everything;
        self.replan = true;
    }

    /// Pods with our readiness gate become ready only once we open it, whether or not a policy governs them.
    fn open_gates(&mut self, now: DateTime<Utc>) {
        let namespaces = std::mem::take(&mut self.gates);
        let pods = if std::mem::take(&mut self.all_gates) {
            self.parts.caches.pods.all()
        } else {
            namespaces.iter().flat_map(|namespace| self.parts.caches.pods.in_namespace(namespace)).collect()
        };
        let waiting: Vec<_> = pods.into_iter().filter(|pod| effects::waits_for_gate(pod)).collect();
        if waiting.is_empty() {
            return;
        }
        let effects = Arc::clone(&self.parts.effects);
        self.tasks.spawn(async move {
            match effects.open_gates(&waiting, now).await {
                Ok(opened) => debug!(opened, "readiness gates opened"),
                // The Pod's next change brings us here again.
                Err(error) => warn!(%error, "readiness gates could not be opened"),
            }
            Done::Nothing
        });
    }

    fn read_freeze(&self) -> Freeze {
        let object = self.parts.caches.freeze.get(&self.parts.options.namespace, FREEZE_CONFIG_MAP);
        let written = object.as_ref().and_then(|object| object.data.as_ref()?.get(FREEZE_KEY));
        match written.map(String::as_str) {
            None | Some("" | "off") => Freeze::None,
            Some("all") => Freeze::All,
            // `new`, and whatever else somebody wrote in a hurry: an unreadable freeze still freezes.
            Some(_) => Freeze::New,
        }
    }

    /// How long nothing has to be done unless something changes.
    fn pause(&self, now: DateTime<Utc>, sweep: DateTime<Utc>) -> Duration {
        const LONGEST: Duration = Duration::from_secs(30);
        if !self.parts.caches.are_synced() {
            return LONGEST;
        }
        let mut next = sweep;
        next = self.fetches.next_due().map_or(next, |due| next.min(due));
        next = self.pin_end.map_or(next, |end| next.min(end));
        if self.judges() {
            next = self.next_round().map_or(next, |due| next.min(due));
        }
        if self.acts() {
            next = self.slots.next_look().map_or(next, |due| next.min(due));
            // Where as many are written as may be, the end of one brings us here again.
            if self.report_permits.available_permits() > 0 {
                next = self.registry.next_report().map_or(next, |due| next.min(due));
            }
        }
        let until = next.signed_duration_since(now).to_std().unwrap_or(Duration::ZERO);
        let until = until.clamp(Duration::from_millis(1), LONGEST);
        self.publish_due().map_or(until, |due| until.min(due.max(Duration::from_millis(1))))
    }
}
