//! The governed service of the real tests: the Pods of a namespace serve HTTP requests in this process, each at its own
//! address, under a load that follows the Services and the VirtualService as they stand. It is a world of cause and
//! effect and knows nothing of policies.

mod mesh;
mod server;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinSet;

use super::parts::{ControlPlane, Kubelet, Prometheus, ScrapeTarget, User, write_targets};
use super::wait::wait_until;
use mesh::Mesh;
use server::Server;

/// Every Pod listens here, at its own address.
pub(crate) const PORT: u16 = 8080;

/// The name of the target, of its Service and of its VirtualService.
const SERVICE: &str = "core-trading";

/// The kinds that a cluster with Istio and this user's operator has.
pub(crate) const KINDS: &str = include_str!("order_service/kinds.yaml");
/// The target first, then what its operator made for it.
pub(crate) const OBJECTS: &str = include_str!("order_service/objects.yaml");

const READY_WITHIN: Duration = Duration::from_mins(1);
const REQUESTS_PER_SECOND: u32 = 40;

/// How long a Pod takes to answer: given its name and its version (`primary` or `cache-only`).
type Latency = Box<dyn Fn(&str, &str) -> Duration + Send + Sync>;

/// The OrderService `core-trading` with its Pods under load. Dropped, they fall silent; the objects stay.
pub(crate) struct OrderService {
    world: Arc<World>,
    _tasks: JoinSet<()>,
    _kubelet: Kubelet,
}

/// What the tasks share.
struct World {
    latency: Mutex<Latency>,
    servers: Mutex<BTreeMap<String, Server>>,
}

impl OrderService {
    /// Creates the kinds, and the objects (`OBJECTS`, or an altered copy) in `namespace`; runs its Pods, has Prometheus
    /// scrape them, and waits until each Pod of `primary` has served. The control plane runs its controllers.
    pub(crate) async fn deploy(
        control_plane: &ControlPlane,
        namespace: &str,
        prometheus: &Prometheus,
        objects: &str,
    ) -> Self {
        create_objects(control_plane, namespace, objects).await;
        let client = control_plane.client(User::Admin).await;
        let world = Arc::new(World {
            latency: Mutex::new(Box::new(|_, _| Duration::from_millis(20))),
            servers: Mutex::default(),
        });
        let kubelet = Kubelet::start(client.clone(), namespace);
        let mut tasks = JoinSet::new();
        let targets_file = prometheus.targets_file(namespace);
        tasks.spawn(Arc::clone(&world).run_pods(client.clone(), namespace.to_owned(), targets_file));
        let mesh = Mesh::watch(client, namespace, SERVICE, &mut tasks);
        tasks.spawn(Arc::clone(&world).send_requests(mesh));
        let service = Self { world, _tasks: tasks, _kubelet: kubelet };
        wait_until("every Pod of primary serves", READY_WITHIN, async || {
            let served = service.served();
            let serving = served.iter().filter(|(pod, count)| !pod.contains("cache-only") && **count > 0);
            if serving.count() == 3 { Ok(()) } else { Err(format!("served by Pod: {served:?}")) }
        })
        .await;
        service
    }

    /// From now on a Pod takes as long to answer as this says, given its name and its version.
    pub(crate) fn set_latency(&self, latency: impl Fn(&str, &str) -> Duration + Send + Sync + 'static) {
        *self.world.latency.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(latency);
    }

    /// The requests that each Pod has answered since it came up; Pods that are gone are not in it.
    pub(crate) fn served(&self) -> BTreeMap<String, u64> {
        let servers = self.world.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.iter().map(|(pod, server)| (pod.clone(), server.served())).collect()
    }
}

/// Creates the kinds that such a cluster has: the user's own and those of Istio.
pub(crate) async fn create_kinds(control_plane: &ControlPlane) {
    control_plane.apply(None, KINDS).await;
    control_plane
        .kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crds", "-l", "tradeguard.test/world"])
        .await;
}

async fn create_objects(control_plane: &ControlPlane, namespace: &str, objects: &str) {
    create_kinds(control_plane).await;
    let (target, owned) = objects.split_once("\n---\n").expect("the target comes first, its dependents follow");
    control_plane.apply(Some(namespace), target).await;
    let uid = control_plane
        .kubectl(&["get", "orderservices.trade.io", "core-trading", "-n", namespace, "-o", "jsonpath={.metadata.uid}"])
        .await;
    control_plane.apply(Some(namespace), &owned.replace("${OWNER_UID}", &uid)).await;
}

impl World {
    /// Keeps a server for each Pod that has an address, and Prometheus told of them.
    async fn run_pods(self: Arc<Self>, client: Client, namespace: String, targets_file: PathBuf) {
        let pods: Api<Pod> = Api::namespaced(client, &namespace);
        let events = watcher(pods, watcher::Config::default()).default_backoff();
        pin_mut!(events);
        // What a new watch has shown so far: at its end, the Pods that it did not show are gone.
        let mut shown = BTreeMap::new();
        while let Some(event) = events.next().await {
            let settled = !matches!(event, Ok(watcher::Event::Init | watcher::Event::InitApply(_)));
            match event {
                Ok(watcher::Event::Init) => shown.clear(),
                Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) => {
                    shown.insert(pod.name_any(), pod);
                }
                Ok(watcher::Event::Delete(pod)) => {
                    shown.remove(&pod.name_any());
                }
                Ok(watcher::Event::InitDone) => {}
                // The API server is away: what runs, runs on.
                Err(_) => continue,
            }
            if settled {
                self.run(&shown, &namespace, &targets_file).await;
            }
        }
    }

    async fn run(self: &Arc<Self>, pods: &BTreeMap<String, Pod>, namespace: &str, targets_file: &Path) {
        let missing: Vec<_> = {
            let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
            servers.retain(|name, _| pods.contains_key(name));
            pods.iter().filter(|(name, _)| !servers.contains_key(*name)).collect()
        };
        for (name, pod) in missing {
            let Some(address) = address_of(pod) else { continue };
            let version = pod.labels().get("version").cloned().unwrap_or_default();
            let (world, pod_name) = (Arc::clone(self), name.clone());
            let server = Server::start(SERVICE, address, move || {
                world.latency.lock().unwrap_or_else(PoisonError::into_inner)(&pod_name, &version)
            });
            let server = server.await;
            self.servers.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), server);
        }
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let targets: Vec<_> = servers
            .iter()
            .map(|(pod, server)| ScrapeTarget {
                address: server.address(),
                namespace: namespace.to_owned(),
                pod: pod.clone(),
            })
            .collect();
        write_targets(targets_file, &targets);
    }

    /// The load: evenly spaced, each request to the Pod that the mesh names, whether or not earlier ones are answered.
    async fn send_requests(self: Arc<Self>, mut mesh: Mesh) {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(10)).build().expect("the options are plain");
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / REQUESTS_PER_SECOND);
        let mut under_way = JoinSet::new();
        loop {
            ticks.tick().await;
            while under_way.try_join_next().is_some() {}
            let Some(pod) = mesh.next_pod() else { continue };
            let address = {
                let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
                servers.get(&pod).map(Server::address)
            };
            // A service that does not answer gets no more than this at once.
            if let Some(address) = address
                && under_way.len() < 200
            {
                under_way.spawn(http.post(format!("http://{address}/orders")).send());
            }
        }
    }
}

fn address_of(pod: &Pod) -> Option<SocketAddr> {
    let address: IpAddr = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
    Some(SocketAddr::new(address, PORT))
}
