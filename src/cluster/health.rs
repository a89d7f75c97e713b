//! The health of the watches: how old each one is, the deadlines of its requests, and its end.
//!
//! A watch that hangs or ends looks like a cluster in which nothing changes. So each watch sends its
//! requests through a client of its own that notes when the API server was last heard, and a watch
//! whose task ends is reported, so that the process can end.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Bytes;
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tower::BoxError;
use tracing::error;

use super::pages::Pages;

/// How long the API server may take to begin an answer, and to continue a list. A watch may be
/// silent for longer; kube's watcher starts one again that is silent for longer than the API server
/// keeps it open.
const DEADLINE: Duration = Duration::from_secs(30);

/// When the API server was last heard by a watch.
#[derive(Debug)]
pub(super) struct Heard(Mutex<Instant>);

impl Heard {
    /// Heard now: the age of a watch begins with its start.
    pub(super) fn now() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Instant::now())))
    }

    /// Notes that the API server was heard: an object, a list, a bookmark, or that it does not
    /// serve the kind.
    pub(super) fn touch(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// The time since the API server was last heard.
    pub(super) fn age(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// A client that sends over the connections of `client`, notes in `heard` each part of a successful
/// answer, and gives up requests that are not answered within [`DEADLINE`]. Lists are read by
/// [`Pages`].
pub(super) fn listening(client: &Client, heard: &Arc<Heard>) -> Client {
    let (inner, heard, pages) = (client.clone(), Arc::clone(heard), Pages::new());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, heard, pages) = (inner.clone(), Arc::clone(&heard), pages.clone());
        async move { pages.send(request, |request| send(&inner, &heard, request)).await }
    });
    Client::new(service, client.default_namespace())
}

async fn send(
    inner: &Client,
    heard: &Arc<Heard>,
    request: Request<Body>,
) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
    let query = request.uri().query().unwrap_or_default();
    let is_watch = query.split('&').any(|pair| pair.starts_with("watch="));
    let answer = timeout(DEADLINE, inner.send(request)).await.map_err(|_| no_answer())??;
    let heard = answer.status().is_success().then(|| Arc::clone(heard));
    let touch = move || heard.iter().for_each(|heard| heard.touch());
    touch();
    // Each part of a list has to arrive within the deadline; a watch may be silent for longer.
    Ok(answer.map(|body| {
        let frames = stream::try_unfold((body, touch), move |(mut body, touch)| async move {
            let next = body.frame();
            let frame = match is_watch {
                true => next.await,
                false => timeout(DEADLINE, next).await.map_err(|_| no_answer())?,
            };
            let frame = frame.transpose()?;
            frame.iter().for_each(|_| touch());
            Ok(frame.map(|frame| (frame, (body, touch))))
        });
        StreamBody::new(frames).boxed_unsync()
    }))
}

fn no_answer() -> io::Error {
    let message = format!("the API server did not answer within {} s", DEADLINE.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// The first watch that ended, if any.
#[derive(Debug)]
pub(super) struct Tasks(watch::Sender<Option<String>>);

impl Tasks {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Runs the task of a watch, and reports its end: no watch ends by itself.
    pub(super) fn spawn(
        &self,
        kind: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = tokio::spawn(task);
        let ended = self.0.clone();
        tokio::spawn(async move {
            let how = match task.await {
                Ok(()) => "ended",
                Err(error) if error.is_panic() => "panicked",
                // The runtime is being shut down.
                Err(_) => return,
            };
            error!(kind, "the watch {how}; this is a bug in stowplan, and the process ends");
            ended.send_if_modified(|first| {
                let is_first = first.is_none();
                first.get_or_insert_with(|| format!("the watch of {kind} {how}"));
                is_first
            });
        });
    }

    /// Waits until a watch has ended, and returns which one.
    pub(super) async fn ended(&self) -> String {
        let mut ended = self.0.subscribe();
        let ended = ended.wait_for(Option::is_some).await;
        // The sender lives as long as `self`.
        ended.ok().and_then(|ended| ended.clone()).unwrap_or_default()
    }
}
