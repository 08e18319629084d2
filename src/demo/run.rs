//! Runs a whole story: the world, an engine in it, a policy applied like anybody would, a fault, until it is over.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::fault::Fault;
use super::instance::{Instance, Measuring, Settings};
use super::story::Recorder;
use super::world::World;
use crate::model::view::View;
use crate::rego::Rule;

/// The seed policy, byte for byte that of deploy/examples.
pub const SEED_POLICY: &str = include_str!("../../deploy/examples/order-processing.yaml");

/// How often faults are set and the story is looked at, in simulated time.
const PACE: Duration = Duration::from_secs(1);

/// A story under way.
pub struct Run {
    /// The world.
    pub world: World,
    /// The engine in it.
    pub engine: Instance,
    /// What happened so far.
    pub recorder: Recorder,
    fault: Fault,
    stop: CancellationToken,
    going: tokio::task::JoinHandle<()>,
}

impl Run {
    /// Starts the world and an engine in it. Stories that are not over by `limit` are given up.
    pub async fn start(
        world: World,
        fault: Fault,
        rule: Rule,
        state_dir: &Path,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let going = tokio::spawn({
            let (world, stop) = (world.clone(), stop.clone());
            async move { world.run(stop).await }
        });
        // Long enough that a busy machine at high speed does not lose it.
        let lease = Duration::from_secs(600);
        let settings = Settings {
            name: "demo",
            client: world.memkube.client("demo"),
            state_dir,
            lease,
            latency_rule: rule,
            measuring: Measuring::of_pods(&world),
            further_kinds: &[],
        };
        let engine = Instance::start(&world, settings).await?;
        let recorder = Recorder::new(&world, limit);
        Ok(Self { world, engine, recorder, fault, stop, going })
    }

    /// Goes on for one pace; the view as it is then.
    pub async fn go_on(&mut self) -> Arc<View> {
        self.world.set_faults(self.fault.at(self.recorder.elapsed()));
        self.world.clock.sleep(PACE).await;
        let view = Arc::clone(&self.engine.view.borrow_and_update());
        self.recorder.take(&view);
        view
    }

    /// Whether the story is over.
    pub fn is_over(&self) -> bool {
        self.recorder.is_over(self.fault.ends())
    }

    /// Ends it.
    pub async fn stop(self) -> Recorder {
        self.engine.stop().await;
        self.stop.cancel();
        // A world that panicked has said so already.
        let _ = self.going.await;
        self.recorder
    }
}
