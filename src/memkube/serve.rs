//! memkube on a socket, so that a real kubectl can look into the demo.
//!
//! Refuses to listen anywhere but on the loopback: there is no authentication.

use std::{
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr},
};

use axum::Router;
use tokio::net::TcpListener;

use crate::memkube::MemKube;

/// A bound listener that does not serve yet.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    memkube: MemKube,
}

impl MemKube {
    /// Binds a port of 127.0.0.1; 0 takes a free one.
    pub async fn listen(&self, port: u16) -> io::Result<Listener> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        Ok(Listener { listener, memkube: self.clone() })
    }
}

impl Listener {
    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` resolves; open watches end with it.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let router = Router::new().fallback_service(self.memkube.service("http"));
        tokio::select! {
            served = async { axum::serve(self.listener, router).await } => served,
            // A graceful shutdown would wait for watches, which need not end.
            () = stop => Ok(()),
        }
    }
}
