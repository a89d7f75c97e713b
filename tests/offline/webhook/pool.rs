//! A client that copies the API server's transport.
//!
//! Go's `http.Transport` as the API server configures it for a Service: HTTP/1.1 only, and of the idle
//! connections the last used first. A connection that the server has closed while it was idle is
//! noticed and dropped; a POST that breaks off after it was written is not repeated.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::ClientConfig;

use super::client::{Answer, Connection, good_review, post};
use super::process::NAME;

/// The transport, and the endpoints of the Service that it dials in turn.
pub(crate) struct Pool {
    pub(crate) endpoints: Mutex<Vec<SocketAddr>>,
    config: Arc<ClientConfig>,
    idle: Mutex<Vec<Connection>>,
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
        let (mut connection, used) = self.connection()?;
        let broke =
            |error| format!("a {} connection broke: {error}", if used { "used" } else { "new" });
        let answer =
            connection.send(&post(body)).and_then(|()| connection.answer()).map_err(broke)?;
        if !answer.closes() {
            self.idle.lock().unwrap().push(connection);
        }
        match answer.status {
            200 => Ok(answer),
            status => Err(format!("{status}: {}", answer.text())),
        }
    }

    /// The idle connection that was used last, or a new one.
    fn connection(&self) -> Result<(Connection, bool), String> {
        while let Some(mut connection) = self.idle.lock().unwrap().pop() {
            if connection.is_open() {
                return Ok((connection, true));
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
