//! A backend that answers badly, in every way that one can, beside a good one: its own policies have no reading and say
//! why, what they hold stands, and the others are judged on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tradeguard::clock::Clock;
use tradeguard::demo::instance::Measuring;
use tradeguard::model::verdict::Outcome;
use tradeguard::signals::{Backend, Request, Response, Transport, TransportError};

use super::scene::{Engine, Scene, breaker};

/// What the bad backend does.
#[derive(Clone)]
enum Answer {
    Body(u16, String),
    Refused,
    TooLate,
}

impl Answer {
    fn vector(result: &str) -> Self {
        Self::of_type("vector", result)
    }

    fn of_type(kind: &str, result: &str) -> Self {
        Self::Body(200, format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#))
    }

    fn error(status: u16, kind: &str) -> Self {
        Self::Body(status, format!(r#"{{"status":"error","errorType":"{kind}","error":"x"}}"#))
    }
}

/// The simulated Pods, and a Prometheus that says what a test wants.
struct Split {
    pods: Arc<dyn Transport>,
    answer: Arc<Mutex<Answer>>,
    clock: Clock,
}

#[async_trait]
impl Transport for Split {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        if !request.url.starts_with("http://prometheus/") {
            return self.pods.send(request).await;
        }
        // How old the samples are: as new as can be.
        if String::from_utf8_lossy(&request.body).contains("timestamp%28") {
            let now = self.clock.now().timestamp();
            return waits(&now.to_string(), now).send().await;
        }
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        answer.send().await
    }
}

impl Answer {
    async fn send(self) -> Result<Response, TransportError> {
        match self {
            Self::Body(status, body) => {
                let kind = if body.starts_with('<') { "text/html" } else { "application/json" };
                Ok(Response { status, content_type: Some(kind.to_owned()), body: body.into() })
            }
            Self::Refused => Err(TransportError::Connect("connection refused".to_owned())),
            Self::TooLate => {
                tokio::time::sleep(Duration::from_secs(4)).await;
                Err(TransportError::Timeout(Duration::from_secs(4)))
            }
        }
    }
}

/// Seconds of waiting, as the backend knows them now.
fn waits(seconds: &str, now: i64) -> Answer {
    Answer::vector(&format!(r#"[{{"metric":{{}},"value":[{now},"{seconds}"]}}]"#))
}

fn cases(now: i64) -> Vec<(&'static str, Answer, &'static str)> {
    let two = format!(r#"[{{"metric":{{"a":"1"}},"value":[{now},"1"]}},{{"metric":{{"a":"2"}},"value":[{now},"2"]}}]"#);
    vec![
        ("NaN", waits("NaN", now), "NaN"),
        ("an infinity", waits("+Inf", now), "Inf"),
        ("nothing", Answer::vector("[]"), "NoData"),
        ("several series", Answer::vector(&two), "Several"),
        ("another kind", Answer::of_type("matrix", "[]"), "BadAnswer"),
        ("HTML", Answer::Body(200, "<html><body>log in</body></html>".to_owned()), "BadAnswer"),
        ("half an answer", Answer::Body(200, r#"{"status":"success","data":{"resultTy"#.to_owned()), "BadAnswer"),
        ("400", Answer::error(400, "bad_data"), "QueryError"),
        ("422", Answer::error(422, "execution"), "QueryError"),
        ("500", Answer::error(500, "internal"), "BackendError"),
        ("503", Answer::Body(503, "<html>no upstream</html>".to_owned()), "BackendError"),
        ("a refused connection", Answer::Refused, "BackendError"),
        ("no answer in time", Answer::TooLate, "Timeout"),
    ]
}

fn waiting(name: &str) -> Value {
    let mut policy = breaker(name, "10m");
    policy["spec"]["signal"] = json!({"backend": "bad", "query": "max(order_wait_seconds)", "unit": "s"});
    policy["spec"]["actions"] = json!([{"type": "mode", "config": {"mode": "cache-only"}}]);
    policy
}

fn is_judged(scene: &Scene, engine: &Engine, name: &str) -> bool {
    let Some(policy) = engine.policy(name) else { return false };
    let age = scene.world.clock.now() - policy.judged_at.expect("was judged");
    age.num_seconds() <= 6 && matches!(policy.verdict, Some((Outcome::Ok, _)))
}

/// Promise 5, of what stands; and that other policies go on.
#[tokio::test(start_paused = true)]
async fn every_bad_answer_has_its_reason_moves_nothing_and_blinds_nobody_else() {
    let scene = Scene::open();
    let now = scene.world.clock.now().timestamp();
    let answer = Arc::new(Mutex::new(waits("2", now)));
    let mut measuring = Measuring::of_pods(&scene.world);
    let bad: Backend = serde_saphyr::from_str("{kind: prometheus, url: 'http://prometheus/'}").expect("is a backend");
    measuring.options.backends.insert("bad".to_owned(), bad);
    measuring.transport =
        Arc::new(Split { pods: measuring.transport, answer: Arc::clone(&answer), clock: scene.world.clock });
    let engine = scene.engine_measuring("a", measuring).await;
    scene.until("it acts", 60, || engine.acts()).await;
    scene.apply(&waiting("bad")).await;
    scene.until("it holds the mode", 90, || scene.mode().as_deref() == Some("cache-only")).await;
    scene.apply(&breaker("good", "10m")).await;
    scene.until("the good one is judged", 30, || is_judged(&scene, &engine, "good")).await;
    let before = scene.counts();
    for (what, case, reason) in cases(now) {
        *answer.lock().unwrap_or_else(PoisonError::into_inner) = case;
        scene
            .until(&format!("{what} is {reason}"), 30, || {
                engine.policy("bad").is_some_and(|shown| shown.reason.as_str() == reason)
            })
            .await;
        for _ in 0..20 {
            scene.rest(1).await;
            assert!(is_judged(&scene, &engine, "good"), "{what}: the good one is judged on");
        }
        let policy = engine.policy("bad").expect("is shown");
        assert_eq!(policy.reason.as_str(), reason, "{what}");
        assert!(matches!(policy.verdict, Some((Outcome::Unknown(_), _))), "{what}: neither ok nor breached");
        assert_eq!(scene.phase("bad"), "Active", "{what}: what stands, stands");
    }
    assert!(scene.condition("bad", "Blind").starts_with("True"), "{}", scene.condition("bad", "Blind"));
    assert_eq!(scene.effect_writes(&before), 0);
    // An answer again: it goes on, and recovers by it.
    *answer.lock().unwrap_or_else(PoisonError::into_inner) = waits("0.1", now);
    scene.until("it has recovered", 900, || scene.phase("bad") == "Healthy").await;
    scene.until_untouched(30).await;
}
