//! The contract suite that memkube is held to, against the real API server: what it states is how Kubernetes is.

use crate::contract;
use crate::support::parts::{ControlPlane, User};

#[tokio::test]
async fn the_real_api_server_keeps_the_contract() {
    contract::run_all(ControlPlane::shared().await.client(User::Admin).await).await;
}
