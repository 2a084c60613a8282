//! Serving calls of gRPC on a unix socket: a path for each call, and a function that answers it.
//!
//! The answers wait for the server, for disks and for programs: each has a thread.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::IntoResponse;
use axum::routing::post;
use prost::Message;
use tonic::server::Grpc;
use tonic::{Response, Status};
use tonic_prost::ProstCodec;

/// Calls under way, at most.
static CALLS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(64);

/// The calls of one service.
pub struct Service<D> {
    name: &'static str,
    driver: Arc<D>,
    router: Router,
}

impl<D: Send + Sync + 'static> Service<D> {
    /// A service without calls.
    pub fn new(name: &'static str, driver: &Arc<D>) -> Service<D> {
        Service { name, driver: driver.clone(), router: Router::new() }
    }

    /// The same with one more.
    pub fn call<Q, A>(mut self, name: &str, answer: fn(&D, Q) -> Result<A, Status>) -> Service<D>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let driver = self.driver.clone();
        let path = format!("/csi.v1.{}/{name}", self.name);
        let shown = path.clone();
        let serve = move |request: Request<Body>| {
            let (driver, shown) = (driver.clone(), shown.clone());
            let service = tower::service_fn(move |request: tonic::Request<Q>| {
                let (driver, shown) = (driver.clone(), shown.clone());
                async move {
                    // Calls that hang end at some time; until then others are sent away.
                    let Ok(place) = CALLS.try_acquire() else {
                        return Err(Status::unavailable("too many calls are under way"));
                    };
                    let work = move || {
                        // It goes on also when nobody waits for its answer any more.
                        let _place = place;
                        answer(&driver, request.into_inner())
                    };
                    let answered = tokio::task::spawn_blocking(work).await;
                    let answered = answered.unwrap_or_else(|_| Err(Status::internal("it failed")));
                    if let Err(status) = &answered {
                        terminal::session::say(&format!("{shown}: {}", status.message()));
                    }
                    answered.map(Response::new)
                }
            });
            async move {
                let mut grpc = Grpc::new(ProstCodec::<A, Q>::default());
                Ok::<_, Infallible>(grpc.unary(service, request).await.into_response())
            }
        };
        self.router = self.router.route(&path, post(async move |request| serve(request).await));
        self
    }

    /// The paths of its calls.
    pub fn paths(self) -> Router {
        self.router
    }
}

/// Serves paths on a unix socket, until it is told to end.
pub async fn serve(
    socket: &Path,
    paths: Router,
    end: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    // One of before, whose program was killed.
    let _ = std::fs::remove_file(socket);
    if let Some(folder) = socket.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let listener = tokio::net::UnixListener::bind(socket)?;
    let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
    let routes = tonic::service::Routes::from(paths);
    let server = tonic::transport::Server::builder().add_routes(routes);
    server.serve_with_incoming_shutdown(incoming, end).await?;
    Ok(())
}
