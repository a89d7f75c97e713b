//! Serves one connection: the TLS handshake, the requests, the shutdown.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
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
use super::activity::{Client, Deadline};
use super::limits::Limits;
use super::service::Service;
use super::slots::Slot;

/// The most concurrent requests on one HTTP/2 connection.
const STREAMS: u32 = 128;

/// The bytes of a body that an HTTP/2 client may send before they are read; of all bodies of a connection, four times
/// as many. The defaults of hyper, a MiB, would be more than is counted for a connection.
const WINDOW: u32 = 64 * 1024;

/// The largest head of a request, in bytes.
const MAX_HEAD: u32 = 16 * 1024;

/// Serves one connection until it is closed. The error is a stable word, already counted in the
/// metrics.
pub(super) async fn run(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    service: Arc<Service>,
    slot: Slot,
    limits: Limits,
    stop: Stop,
) -> Result<(), &'static str> {
    let _open = service.metrics().open_connection();
    let client = Arc::clone(&slot.client);
    let answer = {
        let (service, client) = (Arc::clone(&service), Arc::clone(&client));
        move |request| {
            let (service, client) = (Arc::clone(&service), Arc::clone(&client));
            async move { service.answer(request, &client).await }
        }
    };
    let served = async {
        let acceptor = acceptor.ok_or("no-client-ca")?;
        // An answer is one small packet; it is sent without waiting for more data.
        let _ = stream.set_nodelay(true);
        let stream = match timeout(limits.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(_)) => return Err("handshake"),
            Err(_) => return Err("handshake-timeout"),
        };
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        talk(stream, http2, &client, limits, &stop, answer).await
    };
    let ended = tokio::select! {
        ended = served => ended,
        () = client.close.cancelled() => Err("crowded"),
    };
    ended.map_err(|reason| service.metrics().count_closed_connection(reason))
}

/// Answers the requests on `stream`.
pub(super) async fn talk<S, A, F>(
    stream: S,
    http2: bool,
    client: &Arc<Client>,
    limits: Limits,
    stop: &Stop,
    answer: A,
) -> Result<(), &'static str>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    client.finish_handshake(http2);
    let io = TokioIo::new(TrackedStream {
        inner: stream,
        client: Arc::clone(client),
        linger: limits.linger,
        lingering: None,
    });
    let draining = stop.draining.clone();
    let serving = Arc::clone(client);
    let service = service_fn(move |request: Request<Incoming>| {
        let active = serving.begin_request();
        // The API server sends no chunked bodies. If a request states its end in two ways
        // (Transfer-Encoding beside Content-Length), the bytes that follow on the same connection
        // must never be parsed as another request (request smuggling), so the connection is closed.
        let has_chunked_body = request.headers().contains_key(TRANSFER_ENCODING);
        let draining = draining.clone();
        let answered = answer(request);
        async move {
            let mut response = answered.await;
            if http2 {
                // HTTP/2 closes by GOAWAY and forbids this header.
                response.headers_mut().remove(CONNECTION);
            } else if has_chunked_body || draining.is_cancelled() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            drop(active);
            Ok::<_, Infallible>(response)
        }
    });
    if http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(4 * WINDOW)
            .max_header_list_size(MAX_HEAD)
            .serve_connection(io, service);
        // GOAWAY names the requests that are still answered, so no call is lost if it is sent
        // early.
        let shut_down = |connection: Pin<&mut _>| http2::Connection::graceful_shutdown(connection);
        drive(connection, shut_down, client, limits, &stop.draining).await
    } else {
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_header_size(MAX_HEAD as usize)
            // The body of an ordinary pod fits into one read, so it is not copied.
            .max_buf_size(64 * 1024)
            .serve_connection(io, service);
        let shut_down = |connection: Pin<&mut _>| http1::Connection::graceful_shutdown(connection);
        drive(connection, shut_down, client, limits, &stop.closing).await
    }
}

/// Serves until the connection ends, a deadline passes, or the server stops. At a stop, or after a
/// time without requests, the connection is shut down in an orderly way; after other deadlines it
/// is dropped.
async fn drive<C>(
    connection: C,
    shut_down: impl FnOnce(Pin<&mut C>),
    client: &Client,
    limits: Limits,
    stop: &CancellationToken,
) -> Result<(), &'static str>
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        ended = connection.as_mut() => return ended.map_err(|error| error_word(&error)),
        deadline = client.wait_for_deadline(limits) => match deadline {
            // Closed without an answer: an incomplete head has no answer, and a client that does
            // not read its answer would not read another one.
            Deadline::Head => return Err("head-timeout"),
            Deadline::Answer => return Err("answer-timeout"),
            Deadline::Idle => Err("idle"),
        },
        () = stop.cancelled() => Ok(()),
    };
    shut_down(connection.as_mut());
    match timeout(limits.stop, connection).await {
        Ok(Ok(())) => result,
        Ok(Err(error)) => Err(error_word(&error)),
        Err(_) => Err("stop-timeout"),
    }
}

fn error_word(error: &hyper::Error) -> &'static str {
    if error.is_parse() { "malformed" } else { "broken" }
}

/// A stream that records reads and writes in the [`Client`], and that closes without destroying
/// the last answer.
struct TrackedStream<S> {
    inner: S,
    client: Arc<Client>,
    linger: Duration,
    lingering: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> TrackedStream<S> {
    fn recorded_write<T>(&mut self, write: impl FnOnce(Pin<&mut S>) -> Poll<T>) -> Poll<T> {
        let polled = write(Pin::new(&mut self.inner));
        self.client.record_write(polled.is_ready());
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.client.record_read();
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.recorded_write(|inner| inner.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.recorded_write(|inner| inner.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.recorded_write(|inner| inner.poll_flush(context))
    }

    /// Closes the writing half, then reads until the client has closed the other, for `linger` at
    /// most. A socket that is closed with unread bytes sends a reset, and a reset may overtake the
    /// answer that explains to the client why its body was refused.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(self.recorded_write(|inner| inner.poll_shutdown(context)))?;
            self.lingering = Some(Box::pin(sleep(self.linger)));
        }
        let Self { inner, lingering: Some(lingering), .. } = &mut *self else {
            return Poll::Ready(Ok(()));
        };
        let mut discarded = [0; 4096];
        while lingering.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut discarded);
            match ready!(Pin::new(&mut *inner).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
