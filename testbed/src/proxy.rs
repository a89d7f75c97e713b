//! An API server that fails on demand: a proxy before the real one.
//!
//! How a controller handles conflicts, throttling, lost answers and lost connections shows only
//! when they happen, and a healthy API server on the same machine causes none of them. So a
//! controller under test talks to this proxy, over plain HTTP and with its own token, and the proxy
//! forwards over TLS, except for requests that a test spoils ([`Fault`]). Everything it forwards is
//! streamed, watches too.
//!
//! It records each request as it arrives ([`Proxy::calls`]), so that a test can count the writes
//! and lists of a step. A request whose effect is visible is already recorded.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

mod call;

pub use self::call::Call;

/// How a request is spoiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 409: as after a write by another client. Not forwarded.
    Conflict,
    /// 422: as if a `test` operation of a JSON patch had failed. Not forwarded.
    Invalid,
    /// 429 with `Retry-After` in seconds: as an API server under load. Not forwarded.
    TooManyRequests {
        /// The seconds that the client is asked to wait.
        retry_after: u32,
    },
    /// 200 with an event of code 410: as to a watch of a resource version that the API server has
    /// compacted. Not forwarded.
    Gone,
    /// 500. Not forwarded.
    InternalError,
    /// 504, after the request was forwarded and answered: the request was carried out, and the
    /// client cannot know.
    TimeoutAfterDone,
    /// Forwarded only after [`Proxy::release`], even if its sender has closed the connection: as a
    /// write that was long under way.
    Hold,
    /// The connection is closed instead of an answer. Not forwarded.
    DropBefore,
    /// The connection is closed instead of the answer that was given: as
    /// [`Fault::TimeoutAfterDone`], with nothing to read.
    DropAfter,
}

/// Chooses the fault of a request, if any.
type Rule = Box<dyn FnMut(&Call) -> Option<Fault> + Send>;

/// A fault for the next requests of a kind.
struct Order {
    times: usize,
    method: Method,
    pattern: String,
    fault: Fault,
}

/// The faults to come, and the recorded requests.
#[derive(Default)]
struct State {
    orders: Vec<Order>,
    rule: Option<Rule>,
    calls: Vec<Call>,
}

impl State {
    /// Records a request, and chooses its fault: the first order that fits, else the rule.
    fn arrived(&mut self, mut call: Call) -> Option<Fault> {
        let ordered = self.orders.iter_mut().find(|order| {
            order.times > 0 && order.method == call.method && call.is_at(&order.pattern)
        });
        let fault = match ordered {
            Some(order) => {
                order.times -= 1;
                Some(order.fault)
            }
            None => self.rule.as_mut().and_then(|rule| rule(&call)),
        };
        call.fault = fault;
        self.calls.push(call);
        fault
    }
}

/// The requests that are held.
struct Holding {
    /// Counts the releases. Dropped with the proxy, and held requests with it.
    releases: watch::Sender<usize>,
    now: Arc<AtomicUsize>,
}

/// A running proxy. It ends, with all its connections, when this value is dropped.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    holding: Arc<Holding>,
    cut: mpsc::Sender<oneshot::Sender<()>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Before a server that speaks TLS at `server` with a certificate for that address, signed by
    /// `authority` (PEM).
    ///
    /// # Errors
    /// `authority` holds no certificate, or no port is free.
    pub async fn before_tls(server: SocketAddr, authority: &[u8]) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority) {
            roots.add(certificate.context("the authority is not PEM")?)?;
        }
        anyhow::ensure!(!roots.is_empty(), "the authority holds no certificate");
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self::start(Upstream { address: server, tls: Some(Arc::new(config).into()) }).await
    }

    /// Before a server that speaks plain HTTP.
    ///
    /// # Errors
    /// No port is free.
    pub async fn before(server: SocketAddr) -> Result<Self> {
        Self::start(Upstream { address: server, tls: None }).await
    }

    async fn start(upstream: Upstream) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port")?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let holding = Arc::new(Holding { releases: watch::Sender::new(0), now: Arc::default() });
        let (cut, cuts) = mpsc::channel(1);
        let inside = Inside { upstream, state: Arc::clone(&state), holding: Arc::clone(&holding) };
        let accepting = tokio::spawn(accept(listener, inside, cuts));
        Ok(Self { address, state, holding, cut, accepting })
    }

    /// Where clients find it: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Spoils the next `times` requests of this method at a path that fits `pattern` (see
    /// [`Call::is_at`]). Orders are filled in the order in which they were given.
    pub fn spoil(&self, times: usize, method: Method, pattern: &str, fault: Fault) {
        let order = Order { times, method, pattern: pattern.to_owned(), fault };
        self.state().orders.push(order);
    }

    /// Spoils what `rule` says, from now on, in place of an earlier rule. It is asked for requests
    /// that no order of [`Proxy::spoil`] fits.
    pub fn spoil_when(&self, rule: impl FnMut(&Call) -> Option<Fault> + Send + 'static) {
        self.state().rule = Some(Box::new(rule));
    }

    /// Spoils nothing any more.
    pub fn heal(&self) {
        let mut state = self.state();
        state.orders.clear();
        state.rule = None;
    }

    /// How many faults of [`Proxy::spoil`] have not happened yet: a test of faults that none met
    /// shows nothing.
    #[must_use]
    pub fn unspent(&self) -> usize {
        self.state().orders.iter().map(|order| order.times).sum()
    }

    /// How many requests are held by [`Fault::Hold`] now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.holding.now.load(Ordering::SeqCst)
    }

    /// Lets the requests go that are held now.
    pub fn release(&self) {
        self.holding.releases.send_modify(|count| *count += 1);
    }

    /// Closes every connection, in the middle of its traffic: all watches break. New ones are
    /// taken. Returns when they are closed.
    pub async fn cut_connections(&self) {
        let (done, all_closed) = oneshot::channel();
        // The other end lives as long as we do.
        if self.cut.send(done).await.is_ok() {
            let _ = all_closed.await;
        }
    }

    /// The requests that arrived, in order, since the start or [`Proxy::forget`].
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Counts from zero from now on.
    pub fn forget(&self) {
        self.state().calls.clear();
    }

    /// The number of requests of this method at a path that fits `pattern` (see [`Call::is_at`]),
    /// spoiled or not.
    #[must_use]
    pub fn count(&self, method: &Method, pattern: &str) -> usize {
        self.count_where(|call| call.method == *method && call.is_at(pattern))
    }

    /// The number of writes of any kind to objects, renewals of Leases and events not counted:
    /// those come with time, not with work.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.count_where(Call::is_write_to_object)
    }

    /// The number of lists of a collection such as `/api/v1/pods` (further pages are not counted).
    #[must_use]
    pub fn lists(&self, pattern: &str) -> usize {
        self.count_where(|call| call.is_list() && call.is_at(pattern))
    }

    /// The number of requests that `wanted` knows.
    #[must_use]
    pub fn count_where(&self, wanted: impl Fn(&Call) -> bool) -> usize {
        self.state().calls.iter().filter(|call| wanted(call)).count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.state)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The connections are in a set that ends with it.
        self.accepting.abort();
    }
}

/// A rule of a test may panic; what was written down stays true.
fn unpoisoned(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What every connection works with.
#[derive(Clone)]
struct Inside {
    upstream: Upstream,
    state: Arc<Mutex<State>>,
    holding: Arc<Holding>,
}

/// Takes connections until it is aborted.
async fn accept(
    listener: TcpListener,
    inside: Inside,
    mut cuts: mpsc::Receiver<oneshot::Sender<()>>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // No more files, say: the next try may have some.
                let Ok((stream, _)) = accepted else { continue };
                connections.spawn(serve(stream, inside.clone()));
            }
            Some(done) = cuts.recv() => {
                connections.shutdown().await;
                // The client may have closed the connection.
                let _ = done.send(());
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection of a client, to its end.
async fn serve(stream: TcpStream, inside: Inside) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let inside = inside.clone();
        async move { inside.answer(request).await }
    });
    // An error is a connection that was closed, by the client or by us: what a proxy is for.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

type Body = BoxBody<Bytes, hyper::Error>;

/// Why a connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
enum Closed {
    /// It was to be.
    #[error("spoiled")]
    Spoiled,
    /// The server is not there, or broke off.
    #[error("{0:#}")]
    Upstream(#[from] anyhow::Error),
}

impl Inside {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Closed> {
        let request = request.map(Incoming::boxed);
        let call = Call::new(request.method().clone(), request.uri());
        // Before it is forwarded: whoever sees what it does finds it written down.
        let fault = unpoisoned(&self.state).arrived(call);
        match fault {
            None => Ok(self.upstream.send(request).await?),
            Some(Fault::Conflict) => Ok(failure(
                StatusCode::CONFLICT,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version",
            )),
            Some(Fault::Invalid) => Ok(failure(
                StatusCode::UNPROCESSABLE_ENTITY,
                "Invalid",
                "the server rejected our request due to an error in our request",
            )),
            Some(Fault::TooManyRequests { retry_after }) => {
                let mut response = failure(
                    StatusCode::TOO_MANY_REQUESTS,
                    "TooManyRequests",
                    "the server has received too many requests and has asked us to try again later",
                );
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry_after));
                Ok(response)
            }
            Some(Fault::Gone) => {
                let status = status(StatusCode::GONE, "Expired", "too old resource version");
                let event = json!({"type": "ERROR", "object": status});
                Ok(json_response(StatusCode::OK, format!("{event}\n")))
            }
            Some(Fault::InternalError) => Ok(failure(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "an error on the server has prevented the request from succeeding",
            )),
            Some(Fault::TimeoutAfterDone) => {
                self.upstream.carry_out(request).await?;
                Ok(failure(
                    StatusCode::GATEWAY_TIMEOUT,
                    "Timeout",
                    "request did not complete within requested timeout",
                ))
            }
            Some(Fault::Hold) => Ok(self.hold(request).await?),
            Some(Fault::DropBefore) => Err(Closed::Spoiled),
            Some(Fault::DropAfter) => {
                self.upstream.carry_out(request).await?;
                Err(Closed::Spoiled)
            }
        }
    }

    /// Forwards a request after the next release, on a task that does not end with the connection.
    async fn hold(&self, request: Request<Body>) -> Result<Response<Body>> {
        let mut releases = self.holding.releases.subscribe();
        let (head, body) = request.into_parts();
        let request = Request::from_parts(head, full(body.collect().await?.to_bytes()));
        let (upstream, now) = (self.upstream.clone(), Arc::clone(&self.holding.now));
        now.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            let released = releases.changed().await;
            now.fetch_sub(1, Ordering::SeqCst);
            released?;
            upstream.send(request).await
        })
        .await?
    }
}

/// As the API server words it.
fn failure(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    json_response(code, status(code, reason, message).to_string())
}

fn status(code: StatusCode, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    })
}

fn json_response(code: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(full(Bytes::from(text)));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// The server behind.
#[derive(Clone)]
struct Upstream {
    address: SocketAddr,
    tls: Option<TlsConnector>,
}

impl Upstream {
    /// Forwards a request; the answer's body comes as the server sends it.
    async fn send(&self, request: Request<Body>) -> Result<Response<Body>> {
        let stream = TcpStream::connect(self.address)
            .await
            .with_context(|| format!("cannot reach {}", self.address))?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => self.exchange(stream, request).await,
            Some(connector) => {
                let name = ServerName::from(self.address.ip());
                self.exchange(connector.connect(name, stream).await?, request).await
            }
        }
    }

    /// Forwards a request, waits for the complete answer and discards it.
    async fn carry_out(&self, request: Request<Body>) -> Result<()> {
        self.send(request).await?.into_body().collect().await?;
        Ok(())
    }

    /// One connection for one request: nothing of a broken one is left for the next.
    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        mut request: Request<Body>,
    ) -> Result<Response<Body>> {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Ends with the answer's body, or when that is dropped because the client went.
        tokio::spawn(connection);
        between_two(request.headers_mut());
        let host = HeaderValue::try_from(self.address.to_string())?;
        request.headers_mut().insert(header::HOST, host);
        let mut response = sender.send_request(request).await?;
        between_two(response.headers_mut());
        Ok(response.map(Incoming::boxed))
    }
}

/// Removes the headers that concern one connection and not the message.
fn between_two(headers: &mut HeaderMap) {
    const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
    for name in [header::CONNECTION, KEEP_ALIVE, header::TRANSFER_ENCODING, header::UPGRADE] {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests;
