//! A client as the API server is one: HTTP/1.1 over TLS, one connection that is kept.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::server;

/// A certificate made for this run, and the client that trusts it.
pub(crate) struct Trust {
    pub(crate) folder: tempfile::TempDir,
    config: Arc<ClientConfig>,
}

const NAME: &str = "stowplan.stowplan-system.svc";

impl Trust {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let certificate = server::write_certificate(folder.path(), NAME)?;
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone())?;
        let mut config =
            ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        // The API server offers a Service nothing else.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { folder, config: Arc::new(config) })
    }
}

/// One connection.
pub(crate) struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr, trust: &Trust) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        // A server that hangs ends the run; under callgrind everything is some fifty times slower.
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        let session =
            ClientConnection::new(Arc::clone(&trust.config), ServerName::try_from(NAME)?)?;
        Ok(Self { stream: StreamOwned::new(session, socket), buffer: Vec::new() })
    }

    /// Sends one review, and returns the body of the answer; any status but 200 is an error.
    pub(crate) fn review(&mut self, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        let head = format!(
            "POST /mutate?timeout=10s HTTP/1.1\r\nHost: {NAME}:443\r\nUser-Agent: kube-apiserver-admission\r\n\
             Content-Length: {}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\
             Accept-Encoding: gzip\r\n\r\n",
            body.len()
        );
        self.stream.write_all(head.as_bytes())?;
        self.stream.write_all(body)?;
        self.stream.flush()?;
        self.buffer.clear();
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head = std::str::from_utf8(&self.buffer[..end])?.to_ascii_lowercase();
        let status = head.lines().next().unwrap_or_default();
        ensure!(status.starts_with("http/1.1 200 "), "the server answered {status}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.context("the answer has no length")?.trim().parse()?;
        while self.buffer.len() < end + length {
            self.more()?;
        }
        ensure!(self.buffer.len() == end + length, "the server sent more than its answer");
        Ok(self.buffer[end..].to_vec())
    }

    fn more(&mut self) -> anyhow::Result<()> {
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk)? {
            0 => bail!("the server closed the connection"),
            read => self.buffer.extend_from_slice(&chunk[..read]),
        }
        Ok(())
    }
}
