//! The SRE platform: takes CloudEvents over HTTP and keeps them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

type Received = Arc<Mutex<Vec<Value>>>;

/// A platform that acknowledges everything. Dropped, it is away.
pub(crate) struct EventSink {
    address: SocketAddr,
    received: Received,
    task: JoinHandle<()>,
}

impl EventSink {
    pub(crate) async fn start() -> Self {
        let received = Received::default();
        let router = Router::new().route("/events", post(receive)).with_state(Arc::clone(&received));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("the kernel has a free port");
        let address = listener.local_addr().expect("it is bound");
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("it serves until it is aborted");
        });
        Self { address, received, task }
    }

    /// Where events are posted.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    /// The events so far, in the order of their arrival, each as often as it came.
    pub(crate) fn received(&self) -> Vec<Value> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for EventSink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn receive(State(received): State<Received>, Json(event): Json<Value>) -> StatusCode {
    received.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    StatusCode::ACCEPTED
}
