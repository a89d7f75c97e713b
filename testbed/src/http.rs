//! Plain HTTP for local processes: GET for `/readyz` and `/metrics`, POST for etcd. Requests to the API
//! server use `kube`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::request::Builder;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An answer: the status code and the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status code.
    pub status: u16,
    /// The body, as text.
    pub body: String,
}

/// Gets `path` from `address`, in at most five seconds.
///
/// # Errors
/// If nothing listens there, or the answer is not HTTP.
pub async fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    exchange(address, Request::get(path), "").await
}

/// Posts JSON to `path` at `address`, in at most five seconds.
///
/// # Errors
/// If nothing listens there, or the answer is not HTTP.
pub async fn post(address: SocketAddr, path: &str, body: &str) -> Result<Answer> {
    exchange(address, Request::post(path).header("content-type", "application/json"), body).await
}

async fn exchange(address: SocketAddr, request: Builder, body: &str) -> Result<Answer> {
    let request = request.header("host", address.to_string()).body(body.to_owned())?;
    let url = format!("http://{address}{}", request.uri());
    let exchanged = async {
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        // It ends with the answer.
        tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        anyhow::Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
    };
    let answered = timeout(Duration::from_secs(5), exchanged).await;
    answered.context("no answer in 5 s").flatten().context(url)
}
