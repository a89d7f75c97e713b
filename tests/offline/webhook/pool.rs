//! A client that copies the API server's transport.
//!
//! Go's `http.Transport` as the API server configures it for a Service: HTTP/1.1 only, at most 25
//! idle connections, the last used first, each for 90 s. A connection that the server has closed
//! while it was idle is noticed and dropped; a POST that breaks off after it was written is not
//! repeated. Answers 429 and 5xx with an integer `Retry-After` are repeated, up to ten times.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::client::{Answer, Connection, good_review, post};
use super::process::NAME;

const IDLE_CONNECTIONS: usize = 25;
const IDLE: Duration = Duration::from_secs(90);
const TRIES: usize = 10;

/// The transport, and the endpoints of the Service that it dials in turn.
pub(crate) struct Pool {
    pub(crate) endpoints: Mutex<Vec<SocketAddr>>,
    config: Arc<ClientConfig>,
    idle: Mutex<Vec<(Connection, Instant)>>,
    dialled: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(endpoints: &[SocketAddr], config: Arc<ClientConfig>) -> Arc<Self> {
        Arc::new(Self {
            endpoints: Mutex::new(endpoints.to_vec()),
            config,
            idle: Mutex::default(),
            dialled: AtomicUsize::new(0),
        })
    }

    /// Posts a review; the error is what the API server would hand to the failurePolicy.
    pub(crate) fn call(&self, body: &[u8]) -> Result<Answer, String> {
        for _ in 0..TRIES {
            let (mut connection, used) = self.connection()?;
            let answer = connection.send(&post(body)).and_then(|()| connection.answer()).map_err(
                |error| {
                    format!("a {} connection broke: {error}", if used { "used" } else { "new" })
                },
            )?;
            if !answer.closes() {
                let mut idle = self.idle.lock().unwrap();
                if idle.len() < IDLE_CONNECTIONS {
                    idle.push((connection, Instant::now()));
                }
            }
            match (answer.status, answer.header("retry-after").and_then(|value| value.parse().ok()))
            {
                (429 | 500.., Some(seconds)) => thread::sleep(Duration::from_secs(seconds)),
                (200, _) => return Ok(answer),
                (status, _) => return Err(format!("{status}: {}", answer.text())),
            }
        }
        Err("tried too often".to_owned())
    }

    /// The idle connection that was used last, or a new one.
    fn connection(&self) -> Result<(Connection, bool), String> {
        loop {
            let candidate = self.idle.lock().unwrap().pop();
            match candidate {
                None => break,
                Some((mut connection, since)) => {
                    if since.elapsed() < IDLE && connection.is_open() {
                        return Ok((connection, true));
                    }
                }
            }
        }
        let endpoint = {
            let endpoints = self.endpoints.lock().unwrap();
            endpoints[self.dialled.fetch_add(1, Ordering::Relaxed) % endpoints.len()]
        };
        let connection = Connection::dial(endpoint, Arc::clone(&self.config), NAME)
            .map_err(|error| format!("cannot connect: {error}"))?;
        Ok((connection, false))
    }

    pub(crate) fn connections_made(&self) -> usize {
        self.dialled.load(Ordering::Relaxed)
    }
}

/// Threads that call the webhook until [`Load::end`].
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// Calls from this many threads, with a pause after each call.
    pub(crate) fn start(pool: &Arc<Pool>, callers: usize) -> Self {
        let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let threads = (0..callers)
            .map(|_| {
                let (pool, stop, calls) = (Arc::clone(pool), Arc::clone(&stop), Arc::clone(&calls));
                thread::spawn(move || {
                    let body = good_review();
                    let mut failures = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        match pool.call(&body) {
                            Ok(answer) if answer.response()["patchType"] == "JSONPatch" => {}
                            Ok(answer) => failures.push(format!("no patch: {answer:?}")),
                            Err(error) => failures.push(error),
                        }
                        calls.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(3));
                    }
                    failures
                })
            })
            .collect();
        Self { stop, calls, threads }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Stops the calls; returns how many there were, and the errors of those that failed.
    pub(crate) fn end(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (self.calls.load(Ordering::Relaxed), failures)
    }
}
