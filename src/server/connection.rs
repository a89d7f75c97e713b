//! One connection: its handshake, its requests, its end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, HeaderValue, TRANSFER_ENCODING};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Stop;
use super::limits::Limits;
use super::pace::{Late, Pace, Serving};
use super::room::Place;
use super::service::Service;

/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 128;

/// The most that the head of a request may take, in bytes.
const MAX_HEAD: u32 = 16 * 1024;

/// Serves one connection to its end. The error is a stable word, counted already.
pub(super) async fn run(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    service: Arc<Service>,
    place: Place,
    limits: Limits,
    stop: Stop,
) -> Result<(), &'static str> {
    let _open = service.metrics().open_connection();
    let answer = {
        let service = Arc::clone(&service);
        move |request| {
            let service = Arc::clone(&service);
            async move { service.answer(request).await }
        }
    };
    let served = async {
        // An answer is one small packet, and should not wait for another.
        let _ = stream.set_nodelay(true);
        let stream = match timeout(limits.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(_)) => return Err("handshake"),
            Err(_) => return Err("handshake-timeout"),
        };
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        talk(stream, http2, &place.pace, limits, &stop, answer).await
    };
    let ended = tokio::select! {
        ended = served => ended,
        () = place.leave.cancelled() => Err("crowded"),
    };
    ended.map_err(|reason| service.metrics().closed(reason))
}

/// Answers the requests that come over `stream`.
pub(super) async fn talk<S, A, F>(
    stream: S,
    http2: bool,
    pace: &Arc<Pace>,
    limits: Limits,
    stop: &Stop,
    answer: A,
) -> Result<(), &'static str>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Watched>) -> F + Send + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    pace.greeted(http2);
    let io = TokioIo::new(Paced {
        inner: stream,
        pace: Arc::clone(pace),
        linger: limits.linger,
        lingering: None,
    });
    let draining = stop.draining.clone();
    let begin = Arc::clone(pace);
    let service = service_fn(move |request: Request<Incoming>| {
        let serving = Arc::new(begin.begin());
        // Nobody frames a body in chunks on our production path. Where the ends of a request could be
        // told in two ways (Transfer-Encoding beside Content-Length), what follows on the same
        // connection must never be taken for another request.
        let doubtful = request.headers().contains_key(TRANSFER_ENCODING);
        let draining = draining.clone();
        let answered = answer(request.map(|body| Watched::new(body, Arc::clone(&serving))));
        async move {
            let mut response = answered.await;
            if response.status().is_success() {
                serving.was_useful();
            }
            if http2 {
                // GOAWAY says it there.
                response.headers_mut().remove(CONNECTION);
            } else if doubtful || draining.is_cancelled() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            drop(serving);
            Ok::<_, Infallible>(response)
        }
    });
    if http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(MAX_HEAD)
            .serve_connection(io, service);
        // Requests that are under way finish, and the client knows which ones those are: nothing is
        // lost by asking early.
        drive(connection, |connection| connection.graceful_shutdown(), pace, limits, &stop.draining)
            .await
    } else {
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_header_size(MAX_HEAD as usize)
            // A body of an ordinary pod comes in one piece, and is not copied.
            .max_buf_size(64 * 1024)
            .serve_connection(io, service);
        drive(connection, |connection| connection.graceful_shutdown(), pace, limits, &stop.closing)
            .await
    }
}

async fn drive<C>(
    connection: C,
    shut_down: impl FnOnce(Pin<&mut C>),
    pace: &Pace,
    limits: Limits,
    stop: &CancellationToken,
) -> Result<(), &'static str>
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    let mut connection = std::pin::pin!(connection);
    let because = tokio::select! {
        ended = connection.as_mut() => return ended.map_err(|error| word(&error)),
        late = pace.late(limits) => match late {
            // Dropped: in the middle of a head there is nobody to answer, and who does not take an
            // answer takes no goodbye either.
            Late::Head => return Err("head-timeout"),
            Late::Answer => return Err("answer-timeout"),
            Late::Idle => Err("idle"),
        },
        () = stop.cancelled() => Ok(()),
    };
    shut_down(connection.as_mut());
    match timeout(limits.stop, connection).await {
        Ok(Ok(())) => because,
        Ok(Err(error)) => Err(word(&error)),
        Err(_) => Err("stop-timeout"),
    }
}

fn word(error: &hyper::Error) -> &'static str {
    if error.is_parse() { "malformed" } else { "broken" }
}

/// The body of a request, which tells when it has come whole.
#[derive(Debug)]
pub(super) struct Watched {
    body: Incoming,
    serving: Arc<Serving>,
}

impl Watched {
    fn new(body: Incoming, serving: Arc<Serving>) -> Self {
        let watched = Self { body, serving };
        watched.look();
        watched
    }

    fn look(&self) {
        if self.body.is_end_stream() {
            self.serving.came_whole();
        }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match frame {
            None => self.serving.came_whole(),
            Some(_) => self.look(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that tells when bytes come and go, and that closes without destroying the last answer.
struct Paced<S> {
    inner: S,
    pace: Arc<Pace>,
    linger: Duration,
    lingering: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Paced<S> {
    fn written<T>(&mut self, write: impl FnOnce(Pin<&mut S>) -> Poll<T>) -> Poll<T> {
        let polled = write(Pin::new(&mut self.inner));
        self.pace.wrote(polled.is_ready());
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.pace.received();
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written(|inner| inner.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.written(|inner| inner.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.written(|inner| inner.poll_flush(context))
    }

    /// Closes our half, then reads on until the client has closed its own. A socket that is closed
    /// with bytes unread sends a reset, and a reset may overtake the answer that tells the client why
    /// its body was not wanted.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(self.written(|inner| inner.poll_shutdown(context)))?;
            self.lingering = Some(Box::pin(sleep(self.linger)));
        }
        let Self { inner, lingering: Some(lingering), .. } = &mut *self else {
            return Poll::Ready(Ok(()));
        };
        let mut unwanted = [0; 4096];
        while lingering.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut unwanted);
            match ready!(Pin::new(&mut *inner).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
