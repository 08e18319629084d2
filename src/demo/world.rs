//! The simulated world: a Kubernetes API in memory, an order service in it, its load, and what people hear of it.
//!
//! The demo runs a controller in it, and so do the tests. Nothing here knows policies: whoever runs the world applies
//! them through the API like anybody else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::simulation::{Faults, PodModel, Simulation, Traffic};
use super::traffic::Objects;
use crate::api::{admission, crd};
use crate::clock::Clock;
use crate::effects::notify::{Deliver, Undelivered};
use crate::memkube::{Cause, FieldError, MemKube, Options};
use crate::signals::{Request, Response, Transport, TransportError};

/// Namespace of the order service.
pub const NAMESPACE: &str = "trading";

/// Name of the order service, its Service and its VirtualService.
pub const SERVICE: &str = "core-trading";

/// Namespace of the engine.
pub const OWN_NAMESPACE: &str = "tradeguard-system";

const CLUSTER: &str = include_str!("order_service.yaml");
const ISTIO: &str = include_str!("istio.yaml");

/// Requests a second.
const LOAD: f64 = 200.0;

const PRIMARY: PodModel = PodModel { capacity: 120.0, cache_only: false };
const CACHE: PodModel = PodModel { capacity: 160.0, cache_only: true };

/// The world; clones share it.
#[derive(Clone)]
pub struct World {
    /// The API.
    pub memkube: MemKube,
    /// Its time.
    pub clock: Clock,
    inner: Arc<Mutex<Inner>>,
    events: Arc<Mutex<Vec<Value>>>,
}

struct Inner {
    simulation: Simulation,
    faults: Faults,
    addresses: BTreeMap<String, String>,
    traffic: Traffic,
    last_step: Duration,
}

impl World {
    /// The order service with five primary Pods and two cache-only ones, all well. Needs a tokio runtime.
    pub fn new(clock: Clock, seed: u64) -> Self {
        let mut options = Options::new(clock);
        options.seed = seed;
        options.admission = Some(admission());
        let memkube = MemKube::new(options);
        memkube.add_namespace(NAMESPACE);
        memkube.add_namespace(OWN_NAMESPACE);
        let world = Self {
            memkube,
            clock,
            inner: Arc::new(Mutex::new(Inner {
                simulation: Simulation::new(BTreeMap::new(), LOAD),
                faults: Faults::default(),
                addresses: BTreeMap::new(),
                traffic: Traffic::default(),
                last_step: clock.monotonic(),
            })),
            events: Arc::default(),
        };
        for definition in crd::all() {
            world.load(&crd::to_yaml(&definition));
        }
        world.load(ISTIO);
        world.load(CLUSTER);
        for number in 1..=5 {
            world.add_pod(&format!("{SERVICE}-primary-{number}"), "primary", PRIMARY);
        }
        for number in 1..=2 {
            world.add_pod(&format!("{SERVICE}-cache-{number}"), "cache-only", CACHE);
        }
        world
    }

    fn load(&self, yaml: &str) {
        self.memkube.load(yaml).expect("the world's own objects are valid");
    }

    /// Starts a Pod of a subset.
    pub fn add_pod(&self, name: &str, version: &str, model: PodModel) {
        let mut inner = self.inner.lock();
        let address = format!("10.0.0.{}", inner.addresses.len() + 1);
        let kind = if model.cache_only { "cache" } else { "primary" };
        self.load(&format!(
            "apiVersion: v1\n\
             kind: Pod\n\
             metadata:\n\
             \x20 name: {name}\n\
             \x20 namespace: {NAMESPACE}\n\
             \x20 labels: {{app: {SERVICE}, version: {version}}}\n\
             \x20 ownerReferences:\n\
             \x20 - {{apiVersion: apps/v1, kind: ReplicaSet, name: {SERVICE}-{kind}, uid: {kind}-uid, controller: true}}\n\
             spec:\n\
             \x20 containers: [{{name: orders, image: orders}}]\n\
             \x20 readinessGates: [{{conditionType: policy.trade.io/serving}}]\n\
             status:\n\
             \x20 phase: Running\n\
             \x20 podIP: {address}\n\
             \x20 conditions:\n\
             \x20 - {{type: ContainersReady, status: 'True'}}\n"
        ));
        inner.simulation.add(name, model);
        inner.addresses.insert(address, name.to_owned());
    }

    /// Makes something go wrong, or well again.
    pub fn set_faults(&self, faults: Faults) {
        self.inner.lock().faults = faults;
    }

    /// How traffic is split at the moment.
    pub fn traffic(&self) -> Traffic {
        self.inner.lock().traffic.clone()
    }

    /// Requests a second by Pod at the moment.
    pub fn rates(&self) -> BTreeMap<String, f64> {
        let inner = self.inner.lock();
        inner.simulation.rates(&inner.traffic)
    }

    /// The events that arrived, oldest first.
    pub fn events(&self) -> Vec<Value> {
        self.events.lock().clone()
    }

    /// Where events arrive.
    pub fn sink(&self) -> Arc<dyn Deliver> {
        Arc::new(Inbox(Arc::clone(&self.events)))
    }

    /// How metrics are fetched from the simulated Pods.
    pub fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(Exporters(Arc::clone(&self.inner)))
    }

    /// Lets the world go on until cancelled: a step each simulated second.
    pub async fn run(&self, cancel: CancellationToken) {
        let kubelet = self.memkube.client("kubelet");
        loop {
            self.step(&kubelet).await;
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.clock.sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    async fn step(&self, kubelet: &Client) {
        let objects = self.objects();
        let pods = Api::<Pod>::namespaced(kubelet.clone(), NAMESPACE);
        for (name, status) in Objects::of(&objects).overdue_readiness() {
            // A Pod that vanished meanwhile needs no status.
            let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
        }
        let objects = self.objects();
        let mut inner = self.inner.lock();
        let now = self.clock.monotonic();
        let seconds = now.saturating_sub(inner.last_step).as_secs_f64();
        inner.last_step = now;
        inner.traffic = Objects::of(&objects).traffic(SERVICE);
        let Inner { simulation, faults, traffic, .. } = &mut *inner;
        simulation.advance(seconds, traffic, faults);
    }

    /// The objects in the service's namespace.
    fn objects(&self) -> Vec<Arc<Value>> {
        let all = self.memkube.everything().into_iter();
        all.filter(|object| object["metadata"]["namespace"] == NAMESPACE).collect()
    }

    /// One object of the service's namespace as it stands.
    pub fn object(&self, kind: &str, name: &str) -> Option<Arc<Value>> {
        self.objects().into_iter().find(|object| object["kind"] == *kind && object["metadata"]["name"] == *name)
    }
}

/// The API server's checks of our own kinds, in front of the in-memory API.
fn admission() -> crate::memkube::Admission {
    Arc::new(|request| {
        let ours = request.object["apiVersion"].as_str().is_some_and(|version| version == crate::api::API_VERSION);
        if !ours {
            return Ok(());
        }
        admission::apply_defaults(request.object);
        admission::check(request.object).map_err(|problems| {
            problems.into_iter().map(|p| FieldError::new(p.path, Cause::Invalid, None, p.message)).collect()
        })
    })
}

/// Takes events in the demo's own process.
struct Inbox(Arc<Mutex<Vec<Value>>>);

#[async_trait]
impl Deliver for Inbox {
    async fn deliver(&self, event: &str) -> Result<(), Undelivered> {
        let event = serde_json::from_str(event).map_err(|_| Undelivered::Never(400))?;
        self.0.lock().push(event);
        Ok(())
    }
}

/// The `/metrics` pages of the simulated Pods.
struct Exporters(Arc<Mutex<Inner>>);

#[async_trait]
impl Transport for Exporters {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let url = url::Url::parse(&request.url).map_err(|error| TransportError::Invalid(error.to_string()))?;
        let inner = self.0.lock();
        let page = url
            .host_str()
            .and_then(|host| inner.addresses.get(host))
            .and_then(|pod| inner.simulation.metrics(pod))
            .ok_or_else(|| TransportError::Connect(format!("nothing listens at {}", request.url)))?;
        let content_type = Some("text/plain; version=0.0.4".to_owned());
        Ok(Response { status: 200, content_type, body: page.into() })
    }
}
