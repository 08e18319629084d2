//! What kube-rs controllers count on from a Kubernetes API, as scenarios that run against memkube and against the real API
//! server alike. Whatever passes here on both is a fact; nothing else makes memkube trustworthy.
//!
//! Each scenario gets a namespace of its own and asserts answers without uids, resource versions and times.

use std::{future::Future, pin::Pin};

mod room;
mod runtime;

use room::Room;

type Scenario = fn(Room) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! scenarios {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((stringify!($name), (|room| Box::pin($module::$name(room))) as Scenario)),*]
    };
}

/// Every scenario, by the sentence it proves.
const SCENARIOS: &[(&str, Scenario)] = scenarios![
    runtime::a_controller_with_finalizers_comes_to_rest_after_three_reconciles,
    runtime::a_reflector_follows_what_happens,
    runtime::discovery_finds_the_kind,
];

/// Runs every scenario against the API behind `client`, which must be allowed everything.
pub(crate) async fn run_all(client: kube::Client) {
    room::install_definition(&client).await;
    for (index, (name, scenario)) in SCENARIOS.iter().enumerate() {
        eprintln!("contract: {}", name.replace('_', " "));
        let room = Room::open(&client, &format!("contract-{index}")).await;
        scenario(room.clone()).await;
        room.close().await;
    }
}

mod on_memkube {
    use chrono::{DateTime, Utc};
    use tradeguard::{
        clock::Clock,
        memkube::{MemKube, Options},
    };

    use super::*;

    fn memkube() -> MemKube {
        let start: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
        MemKube::new(Options::new(Clock::scaled(start, 1.0)))
    }

    #[tokio::test]
    async fn memkube_keeps_the_contract() {
        run_all(memkube().client("contract")).await;
    }

    #[tokio::test(start_paused = true)]
    async fn memkube_keeps_the_contract_in_paused_time() {
        run_all(memkube().client("contract")).await;
    }
}
