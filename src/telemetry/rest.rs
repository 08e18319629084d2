//! Counts requests to the API server: a layer around the client's HTTP service.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower::{Layer, Service};

use super::metrics::Metrics;

/// The layer. A watch counts once, when it is answered.
#[derive(Clone)]
pub struct RestRequests {
    metrics: Arc<Metrics>,
    host: Arc<str>,
}

impl RestRequests {
    /// Counts under this host.
    pub fn new(metrics: Arc<Metrics>, host: impl Into<Arc<str>>) -> Self {
        Self { metrics, host: host.into() }
    }
}

impl<S> Layer<S> for RestRequests {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Counted { inner, by: self.clone() }
    }
}

/// A service whose requests are counted.
#[derive(Clone)]
pub struct Counted<S> {
    inner: S,
    by: RestRequests,
}

impl<S, In, Out> Service<Request<In>> for Counted<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let by = self.by.clone();
        let method = request.method().clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            match &answer {
                Ok(response) => by.metrics.rest_request(response.status().as_str(), method.as_str(), &by.host),
                Err(_) => by.metrics.rest_request("error", method.as_str(), &by.host),
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt, service_fn};

    use super::*;
    use crate::telemetry::metrics::Options;

    #[tokio::test]
    async fn requests_count_by_code_and_one_without_an_answer_as_error() {
        let metrics = Arc::new(Metrics::new(Options::default()));
        let answer = async |request: Request<u16>| match *request.body() {
            0 => Err("refused"),
            code => Ok(Response::builder().status(code).body(()).unwrap()),
        };
        let layer = RestRequests::new(Arc::clone(&metrics), "api:6443");
        for code in [200_u16, 409, 409, 0] {
            let service = layer.layer(service_fn(move |request| Box::pin(answer(request))));
            let _ = service.oneshot(Request::patch("/").body(code).unwrap()).await;
        }
        let text = metrics.render();
        for (code, count) in [("200", 1), ("409", 2), ("error", 1)] {
            let line =
                format!("rest_client_requests_total{{code=\"{code}\",host=\"api:6443\",method=\"PATCH\"}} {count}");
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
