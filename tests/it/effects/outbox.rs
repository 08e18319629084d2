//! The outbox on a real disk: order, restarts, damage, bounds, repetition.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;
use tradeguard::{
    clock::Clock,
    effects::{
        notify::{CloudEvent, Deliver, EffectData, TransitionData, Undelivered},
        outbox::{Error, Limits, Loss, Outbox, Put},
    },
    model::policy::{PolicyKey, PolicyKind},
};

/// A platform that takes what it is given while it is up, and notes what it saw.
#[derive(Default)]
struct Platform {
    /// What it answers, one for each delivery; then it takes everything.
    answers: Mutex<Vec<Undelivered>>,
    taken: Mutex<Vec<String>>,
    seen: tokio::sync::Notify,
}

#[async_trait]
impl Deliver for Platform {
    async fn deliver(&self, event: &str) -> Result<(), Undelivered> {
        let answer = self.answers.lock().unwrap().pop();
        if answer.is_none() {
            let event: CloudEvent = serde_json::from_str(event).unwrap();
            self.taken.lock().unwrap().push(event.data["decisionId"].as_str().unwrap().to_owned());
        }
        self.seen.notify_one();
        answer.map_or(Ok(()), Err)
    }
}

impl Platform {
    async fn wait_for(&self, count: usize) -> Vec<String> {
        loop {
            let taken = self.taken.lock().unwrap().clone();
            if taken.len() >= count {
                return taken;
            }
            self.seen.notified().await;
        }
    }
}

fn event(decision: &str) -> CloudEvent {
    let policy = PolicyKey {
        kind: PolicyKind::LatencyBudgetPolicy,
        namespace: "trading".to_owned(),
        name: "order-processing".to_owned(),
    };
    let data = TransitionData {
        from: "Pending".to_owned(),
        to: "Active".to_owned(),
        decision_id: decision.to_owned(),
        ..TransitionData::default()
    };
    CloudEvent::transition("/tradeguard/test", &policy, DateTime::<Utc>::UNIX_EPOCH, &data)
}

async fn open(dir: &Path, limits: Limits, platform: &Arc<Platform>) -> Outbox {
    let sinks = BTreeMap::from([("sre".to_owned(), Arc::clone(platform) as Arc<dyn Deliver>)]);
    Outbox::open(dir, limits, sinks).await.unwrap()
}

/// Runs the delivery until the platform has taken `count` events.
async fn run_until(outbox: &Outbox, platform: &Platform, count: usize) -> Vec<String> {
    let cancel = CancellationToken::new();
    let clock = Clock::scaled(DateTime::<Utc>::UNIX_EPOCH, 1.0);
    let watch = async {
        let taken = platform.wait_for(count).await;
        // Acknowledgements are on disk once the shelf is free again and empty.
        while outbox.waiting().await["sre"] > 0 {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
        taken
    };
    tokio::join!(outbox.run(clock, cancel.clone()), watch).1
}

fn losses(outbox: &Outbox) -> Vec<(Loss, u64)> {
    outbox.losses().into_iter().filter(|(_, _, count)| *count > 0).map(|(_, loss, count)| (loss, count)).collect()
}

#[tokio::test(start_paused = true)]
async fn events_survive_a_kill_and_arrive_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let platform = Arc::new(Platform::default());
    let killed = open(dir.path(), Limits::default(), &platform).await;
    for decision in ["1", "2", "3"] {
        assert_eq!(killed.put("sre", &event(decision)).await.unwrap(), Put::Kept);
    }
    drop(killed);
    let outbox = open(dir.path(), Limits::default(), &platform).await;
    outbox.put("sre", &event("4")).await.unwrap();
    assert_eq!(run_until(&outbox, &platform, 4).await, ["1", "2", "3", "4"]);
    assert_eq!(losses(&outbox), []);
}

#[tokio::test(start_paused = true)]
async fn a_platform_that_is_away_gets_the_events_when_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let platform = Arc::new(Platform::default());
    let down = Undelivered::Later("connection refused".to_owned());
    *platform.answers.lock().unwrap() = vec![down; 12];
    let outbox = open(dir.path(), Limits::default(), &platform).await;
    let started = tokio::time::Instant::now();
    outbox.put("sre", &event("1")).await.unwrap();
    outbox.put("sre", &event("2")).await.unwrap();
    assert_eq!(run_until(&outbox, &platform, 2).await, ["1", "2"]);
    let waited = started.elapsed().as_secs();
    assert!((300..=800).contains(&waited), "pauses grow, up to a minute: {waited} s");
}

#[tokio::test(start_paused = true)]
async fn one_id_is_told_once_also_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let platform = Arc::new(Platform::default());
    let outbox = open(dir.path(), Limits::default(), &platform).await;
    assert_eq!(outbox.put("sre", &event("1")).await.unwrap(), Put::Kept);
    assert_eq!(outbox.put("sre", &event("1")).await.unwrap(), Put::Known, "it waits");
    run_until(&outbox, &platform, 1).await;
    assert_eq!(outbox.put("sre", &event("1")).await.unwrap(), Put::Known, "it was acknowledged");
    drop(outbox);
    let outbox = open(dir.path(), Limits::default(), &platform).await;
    assert_eq!(outbox.put("sre", &event("1")).await.unwrap(), Put::Known, "a restart does not forget");
    outbox.put("sre", &event("2")).await.unwrap();
    assert_eq!(run_until(&outbox, &platform, 2).await, ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_full_outbox_drops_the_oldest_and_counts_it() {
    let dir = tempfile::tempdir().unwrap();
    let platform = Arc::new(Platform::default());
    let outbox = open(dir.path(), Limits { events: 2, bytes: u64::MAX }, &platform).await;
    for decision in ["1", "2", "3", "4"] {
        outbox.put("sre", &event(decision)).await.unwrap();
    }
    assert_eq!(outbox.waiting().await["sre"], 2);
    assert_eq!(losses(&outbox), [(Loss::Overflow, 2)]);
    assert_eq!(run_until(&outbox, &platform, 2).await, ["3", "4"]);

    let size = serde_json::to_string(&event("1")).unwrap().len() as u64;
    let small = tempfile::tempdir().unwrap();
    let outbox = open(small.path(), Limits { events: 100, bytes: 2 * size + 1 }, &platform).await;
    for decision in ["5", "6", "7"] {
        outbox.put("sre", &event(decision)).await.unwrap();
    }
    assert_eq!(losses(&outbox), [(Loss::Overflow, 1)], "bytes bound it too");
}

#[tokio::test(start_paused = true)]
async fn a_refused_event_does_not_hold_up_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let platform = Arc::new(Platform::default());
    *platform.answers.lock().unwrap() = vec![Undelivered::Never(422)];
    let outbox = open(dir.path(), Limits::default(), &platform).await;
    outbox.put("sre", &event("1")).await.unwrap();
    outbox.put("sre", &event("2")).await.unwrap();
    assert_eq!(run_until(&outbox, &platform, 1).await, ["2"]);
    assert_eq!(losses(&outbox), [(Loss::Refused, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_torn_file_is_set_aside_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let platform = Arc::new(Platform::default());
    let outbox = open(dir.path(), Limits::default(), &platform).await;
    for decision in ["1", "2", "3"] {
        outbox.put("sre", &event(decision)).await.unwrap();
    }
    let mut files: Vec<_> =
        std::fs::read_dir(dir.path().join("sre")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let whole = std::fs::read(&files[2]).unwrap();
    std::fs::write(&files[2], &whole[..whole.len() / 2]).unwrap();
    std::fs::write(dir.path().join("sre/00000000000000000009.new"), "half").unwrap();
    drop(outbox);
    let outbox = open(dir.path(), Limits::default(), &platform).await;
    assert_eq!(losses(&outbox), [(Loss::Torn, 1)]);
    assert!(files[2].with_extension("torn").exists());
    // A second one is damaged while we run.
    std::fs::write(&files[0], "{}").unwrap();
    assert_eq!(run_until(&outbox, &platform, 1).await, ["2"]);
    assert_eq!(losses(&outbox), [(Loss::Torn, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_nobody_configured_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let outbox = open(dir.path(), Limits::default(), &Arc::default()).await;
    let error = outbox.put("pager", &event("1")).await.unwrap_err();
    assert!(matches!(error, Error::UnknownSink(name) if name == "pager"));
}

#[test]
fn an_event_is_a_cloud_event_whose_id_follows_from_the_decision() {
    let json = serde_json::to_value(event("d-1")).unwrap();
    for (field, value) in [
        ("specversion", "1.0"),
        ("type", "io.trade.policy.transition"),
        ("source", "/tradeguard/test"),
        ("subject", "trading/order-processing"),
        ("datacontenttype", "application/json"),
        ("time", "1970-01-01T00:00:00.000Z"),
    ] {
        assert_eq!(json[field], value, "{field}");
    }
    assert_eq!(event("d-1").id, event("d-1").id);
    assert_ne!(event("d-1").id, event("d-2").id);
    let policy = PolicyKey { kind: PolicyKind::LatencyBudgetPolicy, namespace: "a".into(), name: "b".into() };
    let of = |slot: &str| {
        let data = EffectData { decision_id: "d-1".into(), intervention: slot.into(), ..EffectData::default() };
        CloudEvent::effect("/tradeguard/test", &policy, DateTime::<Utc>::UNIX_EPOCH, &data).id
    };
    assert_ne!(of("weights"), of("mode"), "the effects of one decision are told apart");
}
