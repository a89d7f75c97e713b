use hyper::client::conn::http1::{SendRequest, handshake};
use std::convert::Infallible;

use super::*;
use crate::wait::Seen;

/// A server that knows two things: `/watch` sends `first` and, when it is let, `second`; every
/// other request is counted and answered with what came.
struct Server {
    address: SocketAddr,
    done: Arc<AtomicUsize>,
    go_on: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let (go_on, going) = watch::channel(false);
        let count = Arc::clone(&done);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (count, going) = (Arc::clone(&count), going.clone());
                let service =
                    service_fn(move |request| reply(request, Arc::clone(&count), going.clone()));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { address, done, go_on, task }
    }

    fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn reply(
    request: Request<Incoming>,
    done: Arc<AtomicUsize>,
    mut going: watch::Receiver<bool>,
) -> Result<Response<Body>, Infallible> {
    if request.uri().path() == "/watch" {
        let (mut sender, body) = http_body_util::channel::Channel::<Bytes, hyper::Error>::new(1);
        tokio::spawn(async move {
            sender.send_data(Bytes::from("first")).await.unwrap();
            going.wait_for(|go| *go).await.unwrap();
            // The watcher may have closed the connection.
            let _ = sender.send_data(Bytes::from("second")).await;
        });
        return Ok(Response::new(body.boxed()));
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    done.fetch_add(1, Ordering::SeqCst);
    let token = head.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let text = format!(
        "{} {} {} {}",
        head.method,
        head.uri,
        token.unwrap_or_default(),
        String::from_utf8_lossy(&body)
    );
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    response.headers_mut().insert("audit-id", HeaderValue::from_static("7"));
    Ok(response)
}

/// A server, a proxy before it, and a connection to the proxy.
async fn start() -> (Server, Proxy, SendRequest<Full<Bytes>>) {
    let server = Server::start().await;
    let proxy = Proxy::before(server.address).await.unwrap();
    let connection = connect(&proxy).await;
    (server, proxy, connection)
}

/// One connection to a proxy.
async fn connect(proxy: &Proxy) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn send(
    connection: &mut SendRequest<Full<Bytes>>,
    method: &str,
    path: &str,
    body: &str,
) -> hyper::Result<Response<Incoming>> {
    connection.ready().await?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("authorization", "Bearer token")
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    connection.send_request(request).await
}

async fn status(connection: &mut SendRequest<Full<Bytes>>, method: &str, path: &str) -> u16 {
    send(connection, method, path, "[]").await.unwrap().status().as_u16()
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

const NODE: &str = "/api/v1/nodes/n1";
const NODES: &str = "/api/v1/nodes/*";

#[tokio::test]
async fn what_is_not_spoiled_passes_whole() {
    let (_server, proxy, mut connection) = start().await;
    for _ in 0..2 {
        let response =
            send(&mut connection, "PATCH", "/api/v1/nodes/n1?dryRun=All", "[]").await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["audit-id"], "7");
        assert_eq!(text(response).await, "PATCH /api/v1/nodes/n1?dryRun=All Bearer token []");
    }
    assert_eq!(proxy.count(&Method::PATCH, NODES), 2);
    assert_eq!(proxy.writes(), 2);
    assert_eq!(proxy.calls()[0].query, "dryRun=All");
    proxy.forget();
    assert_eq!(proxy.writes(), 0);
}

#[tokio::test]
async fn an_order_is_filled_as_often_as_it_says_and_where_it_fits() {
    let (server, proxy, mut connection) = start().await;
    proxy.spoil(2, Method::PATCH, NODES, Fault::Conflict);
    proxy.spoil(1, Method::PATCH, NODES, Fault::InternalError);
    let mut codes = Vec::new();
    let other = ("PATCH", "/api/v1/nodes/n1/status");
    for (method, path) in [("GET", NODE), other, ("PATCH", NODE), ("PATCH", NODE)] {
        codes.push(status(&mut connection, method, path).await);
    }
    assert_eq!((codes, proxy.unspent()), (vec![200, 200, 409, 409], 1));
    let failed = status(&mut connection, "PATCH", NODE).await;
    let passed = status(&mut connection, "PATCH", NODE).await;
    assert_eq!((failed, passed, proxy.unspent()), (500, 200, 0));
    assert_eq!(server.done(), 3);
    let faults: Vec<_> = proxy.calls().into_iter().map(|call| call.fault).collect();
    let conflict = Some(Fault::Conflict);
    assert_eq!(faults, [None, None, conflict, conflict, Some(Fault::InternalError), None]);
}

#[tokio::test]
async fn failures_are_worded_as_the_api_server_words_them() {
    let (server, proxy, mut connection) = start().await;
    for (fault, code, reason, done) in [
        (Fault::Conflict, 409, "Conflict", 0),
        (Fault::Invalid, 422, "Invalid", 0),
        (Fault::TooManyRequests { retry_after: 3 }, 429, "TooManyRequests", 0),
        (Fault::InternalError, 500, "InternalError", 0),
        (Fault::TimeoutAfterDone, 504, "Timeout", 1),
    ] {
        let before = server.done();
        proxy.spoil(1, Method::PUT, NODES, fault);
        let response = send(&mut connection, "PUT", NODE, "{}").await.unwrap();
        assert_eq!(response.status().as_u16(), code);
        assert_eq!(response.headers()["content-type"], "application/json");
        let after = response.headers().get("retry-after").map(|value| value.to_str().unwrap());
        assert_eq!(after, (code == 429).then_some("3"));
        let said: kube::core::Status = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!((said.code, &*said.reason), (code, reason));
        assert_eq!(server.done() - before, done, "{fault:?}");
    }
}

#[tokio::test]
async fn a_dropped_answer_is_a_closed_connection_before_or_after_the_deed() {
    let (server, proxy, _) = start().await;
    for (fault, done) in [(Fault::DropBefore, 0), (Fault::DropAfter, 1)] {
        proxy.spoil(1, Method::PATCH, NODES, fault);
        let before = server.done();
        let mut connection = connect(&proxy).await;
        send(&mut connection, "PATCH", NODE, "[]").await.unwrap_err();
        assert_eq!(server.done() - before, done, "{fault:?}");
        assert!(connection.ready().await.is_err(), "the connection is still open");
    }
}

#[tokio::test]
async fn a_held_write_arrives_after_its_release_also_without_its_sender() {
    let (server, proxy, mut one) = start().await;
    proxy.spoil(2, Method::PATCH, NODES, Fault::Hold);
    let mut two = connect(&proxy).await;
    let sent = async move { text(send(&mut one, "PATCH", NODE, "[1]").await.unwrap()).await };
    let mut waiting = tokio::spawn(sent);
    let going = tokio::spawn(async move { send(&mut two, "PATCH", NODE, "[2]").await.is_err() });
    let until = async |what: &str, holds: &dyn Fn() -> bool| {
        let wait = crate::wait::until(what, std::time::Duration::from_secs(30), async || {
            Ok(if holds() { Seen::Done(()) } else { Seen::NotYet("no".to_owned()) })
        });
        wait.await.unwrap();
    };
    until("both to be held", &|| proxy.held() == 2).await;
    going.abort();
    assert!(going.await.unwrap_err().is_cancelled());
    // Others pass meanwhile.
    let mut three = connect(&proxy).await;
    assert_eq!(status(&mut three, "PATCH", NODE).await, 200);
    assert_eq!(server.done(), 1);
    assert!(!waiting.is_finished());
    proxy.release();
    assert_eq!((&mut waiting).await.unwrap(), "PATCH /api/v1/nodes/n1 Bearer token [1]");
    until("the other to be done", &|| server.done() == 3).await;
    assert_eq!(proxy.held(), 0);
}

#[tokio::test]
async fn a_rule_sees_every_request_that_no_order_fits() {
    let (_server, proxy, mut connection) = start().await;
    let mut odd = false;
    proxy.spoil_when(move |call| {
        odd = !odd && call.is_write();
        odd.then_some(Fault::Invalid)
    });
    proxy.spoil(1, Method::POST, NODES, Fault::Conflict);
    let mut codes = Vec::new();
    for method in ["POST", "POST", "POST", "GET", "POST"] {
        codes.push(status(&mut connection, method, NODE).await);
    }
    assert_eq!(codes, [409, 422, 200, 200, 422]);
    proxy.heal();
    assert_eq!(status(&mut connection, "POST", NODE).await, 200);
}

#[tokio::test]
async fn a_watch_streams_until_its_connection_is_cut() {
    let (server, proxy, mut first) = start().await;
    let mut body = send(&mut first, "GET", "/watch", "").await.unwrap().into_body();
    // It arrives although the answer has no end yet.
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
    server.go_on.send_replace(true);
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "second");
    assert!(body.frame().await.is_none());

    server.go_on.send_replace(false);
    let mut body = send(&mut first, "GET", "/watch", "").await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
    proxy.cut_connections().await;
    assert!(body.frame().await.unwrap().is_err());
    // New ones are taken.
    let mut second = connect(&proxy).await;
    assert_eq!(status(&mut second, "GET", NODE).await, 200);
}

#[tokio::test]
async fn a_server_that_is_away_is_a_closed_connection() {
    let server = Server::start().await;
    let address = server.address;
    drop(server);
    let proxy = Proxy::before(address).await.unwrap();
    let mut connection = connect(&proxy).await;
    // The task that listened ends a moment later; a connection that it still takes is closed then.
    send(&mut connection, "GET", NODE, "").await.unwrap_err();
    assert_eq!(proxy.calls().len(), 1);
}

#[tokio::test]
async fn a_dropped_proxy_listens_no_more() {
    let server = Server::start().await;
    let proxy = Proxy::before(server.address).await.unwrap();
    let address = proxy.address;
    let mut connection = connect(&proxy).await;
    assert_eq!(status(&mut connection, "GET", NODE).await, 200);
    drop(proxy);
    send(&mut connection, "GET", NODE, "").await.unwrap_err();
    // The task ends with its connection.
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn an_authority_that_is_none_is_refused() {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    for authority in
        ["", "no certificate", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"]
    {
        assert!(Proxy::before_tls(address, authority.as_bytes()).await.is_err(), "{authority}");
    }
}
