//! A webhook's server that does nothing but answer: the runtime, hyper and rustls of the crate, the
//! crate's own TLS configuration, and no limits, deadlines, spans or metrics.

use std::convert::Infallible;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use stowplan::testing::tls::{Certificate, Change};
use tokio_rustls::TlsAcceptor;

/// Writes a certificate for this name and its key into a folder, `tls.crt` and `tls.key`. Returns it.
pub(crate) fn write_certificate(folder: &Path, name: &str) -> anyhow::Result<rcgen::Certificate> {
    // ECDSA on P-256, as the chart makes them.
    let key = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new([name.to_owned()])?.self_signed(&key)?;
    std::fs::write(folder.join("tls.crt"), certificate.pem())?;
    std::fs::write(folder.join("tls.key"), key.serialize_pem())?;
    Ok(certificate)
}

/// Serves with the certificate of a folder until the process ends.
pub(crate) fn serve(
    listener: TcpListener,
    folder: &Path,
    answer: impl Fn(&[u8]) -> anyhow::Result<Vec<u8>> + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let mut files = Certificate::of_files(folder.join("tls.crt"), folder.join("tls.key"), None);
    let loaded = files.refresh(SystemTime::now());
    ensure!(matches!(loaded, Change::Loaded), "the certificate: {loaded:?}");
    let acceptor = TlsAcceptor::from(files.server().current().context("no TLS")?);
    let answer = Arc::new(answer);
    listener.set_nonblocking(true)?;
    // As `stowplan webhook` makes it.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(move |request: Request<Incoming>| {
                    let answer = Arc::clone(&answer);
                    async move { Ok::<_, Infallible>(respond(request, &*answer).await) }
                });
                let _ = http1::Builder::new()
                    .header_read_timeout(None)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    })
}

async fn respond(
    request: Request<Incoming>,
    answer: &(impl Fn(&[u8]) -> anyhow::Result<Vec<u8>> + Sync),
) -> Response<Full<Bytes>> {
    let answered = request.into_body().collect().await.map_err(anyhow::Error::from);
    let mut response = Response::new(Full::default());
    match answered.and_then(|body| answer(&body.to_bytes())) {
        Ok(json) => *response.body_mut() = Full::new(Bytes::from(json)),
        Err(_) => *response.status_mut() = hyper::StatusCode::BAD_REQUEST,
    }
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
