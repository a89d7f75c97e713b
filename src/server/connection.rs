//! One connection: its handshake, its requests, and the deadlines between them.
//!
//! hyper has one timer for two things: the head of a request, which should take seconds, and the
//! time between requests, which must be longer than the API server keeps a connection in its pool.
//! So hyper's is off, and [`Pace`] tells the two apart by watching when bytes come and when requests
//! begin.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use super::Stop;
use super::limits::Limits;
use super::service::Service;

/// Serves one connection to its end. The error is a stable word.
pub(super) async fn run(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    service: Arc<Service>,
    limits: Limits,
    stop: Stop,
) -> Result<(), &'static str> {
    let open = service.metrics().open_connection();
    // An answer is one small packet, and should not wait for another.
    let _ = stream.set_nodelay(true);
    let stream = match timeout(limits.handshake, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(_)) => return Err(service.metrics().closed("handshake")),
        Err(_) => return Err(service.metrics().closed("handshake-timeout")),
    };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let pace = Arc::new(Pace::new(http2));
    let io = TokioIo::new(Paced { inner: stream, pace: Arc::clone(&pace) });
    let answer = {
        let (service, pace, stop) = (Arc::clone(&service), Arc::clone(&pace), stop.clone());
        service_fn(move |request: Request<Incoming>| {
            let (service, stop) = (Arc::clone(&service), stop.clone());
            let serving = pace.begin();
            async move {
                let mut response: Response<Full<Bytes>> = service.answer(request).await;
                if stop.draining.is_cancelled() && !http2 {
                    response
                        .headers_mut()
                        .insert(hyper::header::CONNECTION, hyper::header::HeaderValue::from_static("close"));
                }
                drop(serving);
                Ok::<_, std::convert::Infallible>(response)
            }
        })
    };
    let ended = if http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(250)
            .max_header_list_size(16 * 1024)
            .serve_connection(io, answer);
        drive(connection, |connection| connection.graceful_shutdown(), &pace, limits, &stop).await
    } else {
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(64 * 1024)
            .serve_connection(io, answer);
        drive(connection, |connection| connection.graceful_shutdown(), &pace, limits, &stop).await
    };
    drop(open);
    ended.map_err(|reason| service.metrics().closed(reason))
}

async fn drive<C>(
    connection: C,
    shut_down: impl Fn(Pin<&mut C>),
    pace: &Pace,
    limits: Limits,
    stop: &Stop,
) -> Result<(), &'static str>
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    let mut connection = std::pin::pin!(connection);
    let mut ending = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(|_| "protocol"),
            late = pace.late(limits), if !ending => match late {
                // Dropped in the middle of a head: there is nobody to answer.
                Late::Head => return Err("head-timeout"),
                Late::Idle => {
                    ending = true;
                    shut_down(connection.as_mut());
                }
            },
            () = stop.closing.cancelled(), if !ending => {
                ending = true;
                shut_down(connection.as_mut());
            }
        }
    }
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Between requests.
    Idle,
    /// Bytes have come, and no request has begun yet (HTTP/1.1 only).
    Head,
    /// This many requests are being served.
    Serving(usize),
}

/// Where a connection is, and since when.
#[derive(Debug)]
struct Pace {
    http2: bool,
    now: Mutex<(Phase, Instant)>,
}

/// Which deadline has passed.
#[derive(Debug)]
enum Late {
    Head,
    Idle,
}

impl Pace {
    fn new(http2: bool) -> Self {
        Self { http2, now: Mutex::new((Phase::Idle, Instant::now())) }
    }

    fn change(&self, next: impl FnOnce(Phase) -> Phase) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        *now = (next(now.0), Instant::now());
    }

    fn received(&self) {
        // In HTTP/2 bytes are also settings, windows and pings; there the idle limit alone counts.
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.http2 && matches!(now.0, Phase::Idle) {
            *now = (Phase::Head, Instant::now());
        }
    }

    fn begin(self: &Arc<Self>) -> Serving {
        self.change(|phase| match phase {
            Phase::Serving(requests) => Phase::Serving(requests + 1),
            Phase::Idle | Phase::Head => Phase::Serving(1),
        });
        Serving(Arc::clone(self))
    }

    /// Resolves when a deadline has passed.
    async fn late(&self, limits: Limits) -> Late {
        loop {
            let (phase, since) = *self.now.lock().unwrap_or_else(PoisonError::into_inner);
            let (deadline, late) = match phase {
                Phase::Idle => (since + limits.idle, Late::Idle),
                Phase::Head => (since + limits.head, Late::Head),
                // Requests have deadlines of their own.
                Phase::Serving(_) => (Instant::now() + limits.head, Late::Idle),
            };
            if deadline <= Instant::now() {
                return late;
            }
            // Looked at again at least this often: a head may begin in the meantime, and then its
            // deadline comes first.
            sleep_until(deadline.min(Instant::now() + limits.head.max(Duration::from_millis(10)))).await;
        }
    }
}

/// A request that is being served.
struct Serving(Arc<Pace>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.change(|phase| match phase {
            Phase::Serving(requests) if requests > 1 => Phase::Serving(requests - 1),
            _ => Phase::Idle,
        });
    }
}

/// A stream that tells when bytes come.
struct Paced<S> {
    inner: S,
    pace: Arc<Pace>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.pace.received();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
