//! An API server that fails on demand: a proxy before the real one.
//!
//! How a controller handles conflicts, throttling, lost answers and lost connections shows only
//! when they happen, and a healthy API server on the same machine causes none of them. So a
//! controller under test talks to this proxy, over plain HTTP and with its own token, and the proxy
//! forwards over TLS, except for requests that a test spoils ([`Fault`]). Answers are streamed,
//! watches too.
//!
//! It records each request as it arrives ([`Proxy::calls`]), so that a test can count the writes
//! and lists of a step. A request whose effect is visible is already recorded.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

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
    fn arrived(&mut self, call: Call) -> Option<Fault> {
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
        self.calls.push(call);
        fault
    }
}

/// A running proxy. It ends, with all its connections, when this value is dropped.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    cut: mpsc::Sender<oneshot::Sender<()>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts one before the API server of a configuration, whose credentials should be empty:
    /// requests bring their own.
    ///
    /// # Errors
    /// The configuration is invalid, or no port is free.
    pub async fn before(mut config: Config) -> Result<Self> {
        config.default_retry = false;
        let upstream = Client::try_from(config)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port")?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let (cut, cuts) = mpsc::channel(1);
        let inside = Inside { upstream, state: Arc::clone(&state) };
        let accepting = tokio::spawn(accept(listener, inside, cuts));
        Ok(Self { address, state, cut, accepting })
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

/// The state that all connections share.
#[derive(Clone)]
struct Inside {
    upstream: Client,
    state: Arc<Mutex<State>>,
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

impl Inside {
    /// Returns the answer; after an error the connection is closed without one.
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        let call = Call::new(request.method().clone(), request.uri());
        // Before it is forwarded: whoever sees what it does finds it written down.
        let fault = unpoisoned(&self.state).arrived(call);
        let Some(fault) = fault else { return self.forward(request).await };
        if matches!(fault, Fault::TimeoutAfterDone | Fault::DropAfter) {
            self.forward(request).await?.into_body().collect_bytes().await?;
        }
        // As the API server words it.
        let (code, reason, message) = match fault {
            Fault::Conflict => (StatusCode::CONFLICT, "Conflict", "the object has been modified"),
            Fault::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid", "an invalid request"),
            Fault::TooManyRequests { .. } => {
                (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "please try again later")
            }
            Fault::Gone => (StatusCode::GONE, "Expired", "too old resource version"),
            Fault::InternalError => {
                (StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "an error on the server")
            }
            Fault::TimeoutAfterDone => {
                (StatusCode::GATEWAY_TIMEOUT, "Timeout", "the request did not complete in time")
            }
            Fault::DropBefore | Fault::DropAfter => anyhow::bail!("spoiled"),
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code.as_u16(),
        });
        let mut response = match fault {
            Fault::Gone => json_response(&json!({"type": "ERROR", "object": status})),
            _ => json_response(&status),
        };
        if fault != Fault::Gone {
            *response.status_mut() = code;
        }
        if let Fault::TooManyRequests { retry_after } = fault {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry_after));
        }
        Ok(response)
    }

    /// Forwards a request; the answer's body comes as the server sends it.
    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        let (mut head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        remove_headers_of_connection(&mut head.headers);
        let mut response = self.upstream.send(Request::from_parts(head, body.into())).await?;
        remove_headers_of_connection(response.headers_mut());
        Ok(response)
    }
}

/// A line of JSON with the status 200.
fn json_response(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{value}\n").into_bytes()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Removes the headers that concern one connection and not the message.
fn remove_headers_of_connection(headers: &mut HeaderMap) {
    const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
    for name in
        [header::CONNECTION, KEEP_ALIVE, header::TRANSFER_ENCODING, header::UPGRADE, header::HOST]
    {
        headers.remove(name);
    }
}
