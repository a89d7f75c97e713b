//! Connections whose every byte the test writes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use super::process::{Authority, NAME, PATIENCE, Pair, Webhook};
use crate::pods::review_of;

/// A TLS connection.
pub(crate) struct Connection {
    pub(crate) tls: StreamOwned<ClientConnection, TcpStream>,
    /// Bytes that were read and not parsed yet.
    pending: Vec<u8>,
}

/// An HTTP/1.1 answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

/// A client that trusts this authority and offers this protocol (ALPN).
pub(crate) fn config(authority: &Authority, protocol: &str) -> Arc<ClientConfig> {
    config_with(authority, protocol, None)
}

/// A client that presents this certificate, if any.
pub(crate) fn config_with(
    authority: &Authority,
    protocol: &str,
    own: Option<&Pair>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Arc::new(config)
}

impl Connection {
    /// Speaks HTTP/1.1 with `webhook`, as the API server does with a Service.
    pub(crate) fn open(webhook: &Webhook) -> Self {
        Self::try_open(webhook).unwrap()
    }

    pub(crate) fn try_open(webhook: &Webhook) -> io::Result<Self> {
        Self::dial(webhook.address, config(&webhook.authority, "http/1.1"), NAME)
    }

    pub(crate) fn dial(
        address: SocketAddr,
        config: Arc<ClientConfig>,
        name: &'static str,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(name).unwrap();
        let mut tls = StreamOwned::new(
            ClientConnection::new(config, name).map_err(io::Error::other)?,
            stream,
        );
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        Ok(Self { tls, pending: Vec::new() })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tls.write_all(bytes)?;
        self.tls.flush()
    }

    /// Reads the head of an answer; the answer to HEAD has nothing else.
    pub(crate) fn answer_head(&mut self) -> io::Result<Answer> {
        let head = loop {
            if let Some(end) = self.pending.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break String::from_utf8(self.take(end + 4)?).unwrap();
            }
            self.more()?;
        };
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        Ok(Answer { status, head, body: Vec::new() })
    }

    /// Reads one answer.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let mut answer = self.answer_head()?;
        let length: usize =
            answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        answer.body = self.take(length)?;
        Ok(answer)
    }

    pub(crate) fn call(&mut self, request: &[u8]) -> Answer {
        self.send(request).unwrap();
        self.answer().unwrap()
    }

    /// Reads answers until the connection ends.
    pub(crate) fn answers(&mut self) -> Vec<Answer> {
        std::iter::from_fn(|| self.answer().ok()).collect()
    }

    /// Reads more bytes. Writes nothing first: the answer of a server that reads no more counts, too.
    fn more(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16 * 1024];
        let StreamOwned { conn, sock } = &mut self.tls;
        loop {
            match conn.reader().read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.pending.extend_from_slice(&bytes[..read]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if conn.read_tls(sock)? == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                    conn.process_new_packets().map_err(io::Error::other)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.pending.len() < length {
            self.more()?;
        }
        let rest = self.pending.split_off(length);
        Ok(std::mem::replace(&mut self.pending, rest))
    }

    /// Returns true if the server closes the connection before [`PATIENCE`] is over.
    pub(crate) fn is_ended(&mut self) -> bool {
        ends(&mut self.tls)
    }

    /// Returns true if the connection is open at this moment, as Go's pool would check.
    pub(crate) fn is_open(&mut self) -> bool {
        self.tls.sock.set_nonblocking(true).unwrap();
        let read = self.tls.read(&mut [0; 1]);
        self.tls.sock.set_nonblocking(false).unwrap();
        matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

/// Returns `true` if the server closes the connection before [`PATIENCE`] is over.
pub(crate) fn ends(stream: &mut impl Read) -> bool {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) if Instant::now() < deadline => {}
            Ok(_) => return false,
            Err(error) => {
                return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            }
        }
    }
}

impl Answer {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The response in an answered review.
    pub(crate) fn response(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.header("content-type"), Some("application/json"));
        let review: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(review["kind"], "AdmissionReview");
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
        review["response"].clone()
    }
}

/// A POST of `body` with this timeout.
pub(crate) fn post_within(timeout: &str, body: &[u8]) -> Vec<u8> {
    let mut request = head(timeout, body.len()).into_bytes();
    request.extend_from_slice(body);
    request
}

/// The head of a POST whose body has `length` bytes.
pub(crate) fn head(timeout: &str, length: usize) -> String {
    format!(
        "POST /mutate?timeout={timeout} HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

pub(crate) fn post(body: &[u8]) -> Vec<u8> {
    post_within("10s", body)
}

/// A pod of a Streams job with these annotations.
pub(crate) fn pod(annotations: &[(&str, &str)]) -> Value {
    let annotations: Value = annotations.iter().copied().collect();
    json!({
        "metadata": {
            "name": "pe",
            "labels": {"app": "streams", "streams.ibm.com/job": "job", "streams.ibm.com/pe": "pe"},
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "pe", "image": "streams-runtime"}]},
    })
}

/// The review of a pod that is placed on `n1`.
pub(crate) fn good_review() -> Vec<u8> {
    review_of("default", &pod(&[("streams.ibm.com/host", "n1")])).to_string().into_bytes()
}

/// A request for a pool that does not exist, whose decision waits for it this long.
pub(crate) fn waiting_request(timeout: &str) -> Vec<u8> {
    let nowhere = pod(&[("streams.ibm.com/host-pool", "nowhere")]);
    post_within(timeout, review_of("default", &nowhere).to_string().as_bytes())
}

/// Calls with a good review, which must be answered with a patch.
pub(crate) fn must_serve(connection: &mut Connection) {
    let response = connection.call(&post(&good_review())).response();
    assert_eq!(response["allowed"], true, "{response}");
    assert_eq!(response["patchType"], "JSONPatch", "{response}");
}

/// A new connection, as any other client would make one, is served.
pub(crate) fn others_are_served(webhook: &Webhook) {
    must_serve(&mut Connection::open(webhook));
}

pub(crate) fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
