//! Plain HTTP for local processes: GET for `/readyz` and `/metrics`, POST for etcd.
//!
//! A client library would be too much for this; requests to the API server use `kube`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
    exchange_in_time(address, "GET", path, "").await
}

/// Posts JSON to `path` at `address`, in at most five seconds.
///
/// # Errors
/// If nothing listens there, or the answer is not HTTP.
pub async fn post(address: SocketAddr, path: &str, body: &str) -> Result<Answer> {
    exchange_in_time(address, "POST", path, body).await
}

async fn exchange_in_time(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> Result<Answer> {
    timeout(Duration::from_secs(5), exchange(address, method, path, body))
        .await
        .with_context(|| format!("http://{address}{path}: no answer in 5 s"))?
        .with_context(|| format!("http://{address}{path}"))
}

async fn exchange(address: SocketAddr, method: &str, path: &str, body: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    // HTTP/1.0: the server closes after the body, and sends no chunks.
    let mut request =
        format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n");
    if !body.is_empty() {
        let length = body.len();
        request += &format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
    }
    request += "\r\n";
    stream.write_all(request.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    parse(&String::from_utf8_lossy(&bytes)).context("not an HTTP answer")
}

fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_status_and_a_body() {
        let answer = parse("HTTP/1.0 503 Service Unavailable\r\na: b\r\n\r\nnot ready: nodes\n");
        assert_eq!(answer, Some(Answer { status: 503, body: "not ready: nodes\n".to_owned() }));
        assert_eq!(parse("SSH-2.0-OpenSSH_9.2\r\n\r\n"), None);
        assert_eq!(parse(""), None);
    }
}
