//! Bytes that are not quite HTTP, and handshakes that are not quite TLS.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::client::{
    Answer, Connection, config, ends, good_review, must_serve, others_are_served, post,
};
use super::process::{NAME, PATIENCE, Start, Webhook};

const JSON: &str = "Content-Type: application/json\r\n";

/// The answers to `bytes` until the connection ends.
fn answers(webhook: &Webhook, bytes: &[u8]) -> Vec<Answer> {
    let mut connection = Connection::open(webhook);
    // The server may close the connection meanwhile.
    let _ = connection.send(bytes);
    connection.answers()
}

#[test]
fn requests_whose_end_is_in_doubt_hide_no_other_request() {
    let webhook = Webhook::start();
    let body = String::from_utf8(good_review()).unwrap();
    let hidden = format!(
        "POST /hidden HTTP/1.1\r\nHost: {NAME}\r\n{JSON}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    );
    let length = body.len();
    let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let start = format!("POST /mutate HTTP/1.1\r\nHost: {NAME}\r\n{JSON}");
    let long = format!("Content-Length: {length}\r\n");
    let te = "Transfer-Encoding: chunked\r\n";

    let framed = |headers: &str| format!("{start}{headers}\r\n{chunked}{hidden}");
    let sized = |headers: &str| format!("{start}{headers}\r\n{body}{hidden}");
    // One message by either reading, or an error, but never two messages.
    for (what, request, statuses) in [
        ("TE, CL", framed(&format!("{te}Content-Length: 4\r\n")), &[200, 400][..]),
        ("CL, TE", framed(&format!("Content-Length: 4\r\n{te}")), &[200, 400]),
        ("CL, TE, CL", format!("{start}{long}{te}{long}\r\n0\r\n\r\n{hidden}"), &[200, 400]),
        ("two CL", sized(&format!("{long}Content-Length: 0\r\n")), &[400]),
        ("CL list", sized(&format!("Content-Length: {length}, 0\r\n")), &[400]),
        ("CL sign", sized(&format!("Content-Length: +{length}\r\n")), &[400]),
        ("CL hex", sized("Content-Length: 0x10\r\n"), &[400]),
        ("obs-fold", sized(&format!("X-A: b\r\n Content-Length: 0\r\n{long}")), &[400]),
        ("space before colon", sized(&format!("Transfer-Encoding : chunked\r\n{long}")), &[400]),
        ("TE unknown", framed("Transfer-Encoding: xchunked\r\n"), &[400]),
        ("TE not last", framed("Transfer-Encoding: chunked, identity\r\n"), &[400]),
        ("TE in 1.0", framed(te).replacen("HTTP/1.1", "HTTP/1.0", 1), &[400]),
        ("bare LF in a chunk", format!("{start}{te}\r\n{length:x}\n{body}\n0\n\n{hidden}"), &[400]),
        (
            "chunk too large",
            format!("{start}{te}\r\nfffffffffffffffff\r\n{chunked}{hidden}"),
            &[400],
        ),
        ("CR in a header", sized(&format!("X-A: b\rContent-Length: 0\r\n{long}")), &[400]),
        ("NUL in a header", sized(&format!("X-A: b\0\r\n{long}")), &[400]),
    ] {
        let answers = answers(&webhook, request.as_bytes());
        assert_eq!(answers.len(), 1, "{what}: {answers:?}");
        assert!(statuses.contains(&answers[0].status), "{what}: {answers:?}");
    }
    others_are_served(&webhook);
}

#[test]
fn heads_without_end_are_431() {
    let webhook = Webhook::start();
    let start = format!("POST /mutate HTTP/1.1\r\nHost: {NAME}\r\n");
    let many: String = (0..100_000).map(|number| format!("x{number}: y\r\n")).collect();
    let few_long = format!("x: {}\r\n", "y".repeat(1024 * 1024));
    for headers in [many, few_long] {
        let answers = answers(&webhook, format!("{start}{headers}\r\n").as_bytes());
        assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [431]);
    }
    others_are_served(&webhook);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let bodies: Vec<_> = (0..20)
        .map(|number| {
            let uid = format!("uid-{number}");
            String::from_utf8(good_review())
                .unwrap()
                .replace("0f0e7d9c-6b0a-4a53-9d3c-2f3a7a5b8c11", &uid)
        })
        .collect();
    let requests: Vec<u8> = bodies.iter().flat_map(|body| post(body.as_bytes())).collect();
    connection.send(&requests).unwrap();
    for number in 0..20 {
        assert_eq!(connection.answer().unwrap().response()["uid"], format!("uid-{number}"));
    }
    must_serve(&mut connection);
}

/// HTTP/2, a frame at a time.
struct Http2(Connection);

#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header field, literally, without indexing (RFC 7541, 6.2.2).
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap();
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

fn post_fields() -> Vec<u8> {
    [
        (":method", "POST"),
        (":scheme", "https"),
        (":path", "/mutate?timeout=10s"),
        (":authority", NAME),
        ("content-type", "application/json"),
    ]
    .into_iter()
    .flat_map(|(name, value)| field(name, value))
    .collect()
}

impl Http2 {
    fn open(webhook: &Webhook) -> Self {
        let offer = config(&webhook.authority, "h2");
        let mut connection = Connection::dial(webhook.address, offer, NAME).unwrap();
        assert_eq!(connection.tls.conn.alpn_protocol(), Some(&b"h2"[..]));
        let preface =
            [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
        connection.send(&preface).unwrap();
        Self(connection)
    }

    fn receive(&mut self) -> std::io::Result<Frame> {
        let head = self.0.take(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let frame = Frame { kind: head[3], flags: head[4], stream, payload: self.0.take(length)? };
        if frame.kind == SETTINGS && frame.flags == 0 {
            self.0.send(&super::protocol::frame(SETTINGS, 1, 0, &[]))?;
        }
        Ok(frame)
    }

    /// Posts a good review on a stream of this number, which must be answered with a patch.
    fn must_serve(&mut self, stream: u32) {
        let request = [
            frame(HEADERS, END_HEADERS, stream, &post_fields()),
            frame(DATA, END_STREAM, stream, &good_review()),
        ];
        self.0.send(&request.concat()).unwrap();
        let mut body = Vec::new();
        loop {
            let frame = self.receive().unwrap();
            assert!(![RESET, GOAWAY].contains(&frame.kind), "{frame:?}");
            if frame.stream != stream {
                continue;
            }
            if frame.kind == DATA {
                body.extend_from_slice(&frame.payload);
            }
            if frame.flags & END_STREAM != 0 {
                break;
            }
        }
        // No error has a patch.
        assert!(String::from_utf8(body).unwrap().contains("JSONPatch"));
    }

    /// Reads until the connection ends; returns whether the server sent GOAWAY.
    fn ends_with_goaway(&mut self) -> bool {
        let mut said = false;
        while let Ok(frame) = self.receive() {
            said |= frame.kind == GOAWAY;
        }
        said
    }
}

fn with_http2() -> Webhook {
    Start::new().argument("--http2").run()
}

#[test]
fn http2_is_served_only_where_it_is_asked_for() {
    let webhook = Webhook::start();
    let offer = config(&webhook.authority, "h2");
    assert!(Connection::dial(webhook.address, offer, NAME).is_err());
    others_are_served(&webhook);
    let webhook = with_http2();
    let mut http2 = Http2::open(&webhook);
    for stream in [1, 3, 5] {
        http2.must_serve(stream);
    }
}

#[test]
fn heads_without_end_end_an_http2_connection() {
    let fields = |number: usize| field(&format!("x-{number}"), "y");
    let few: Vec<u8> = (0..50).flat_map(fields).collect();
    let many: Vec<Vec<u8>> =
        (0..100).map(|of| (0..1000).flat_map(|n| fields(1000 * of + n)).collect()).collect();
    // A hundred thousand frames that never end, and a hundred thousand headers that do.
    let flood = vec![frame(CONTINUATION, 0, 1, &few).repeat(16); 6250];
    let headers = many.iter().enumerate().map(|(number, some)| {
        frame(CONTINUATION, if number == 99 { END_HEADERS } else { 0 }, 1, some)
    });
    for frames in [flood, headers.collect()] {
        let webhook = with_http2();
        let mut http2 = Http2::open(&webhook);
        http2.0.send(&frame(HEADERS, END_STREAM, 1, &post_fields())).unwrap();
        let is_cut = frames.iter().any(|frames| http2.0.send(frames).is_err());
        // Refused in one way or another, and never decided.
        assert!(is_cut || http2.ends_with_goaway() || http2.0.is_ended());
        assert!(webhook.peak_memory() < 128 * 1024 * 1024);
        assert!(!webhook.admin("/metrics").body.contains("stowplan_admission_requests_total{"));
        others_are_served(&webhook);
    }
}

#[test]
fn rapid_resets_end_the_connection() {
    let webhook = with_http2();
    let mut http2 = Http2::open(&webhook);
    let mut sent = 0;
    for stream in (1..40_001).step_by(2) {
        let both = [
            frame(HEADERS, END_HEADERS, stream, &post_fields()),
            // CANCEL.
            frame(RESET, 0, stream, &8_u32.to_be_bytes()),
        ];
        if http2.0.send(&both.concat()).is_err() {
            break;
        }
        sent += 1;
    }
    assert!(sent < 20_000 || http2.ends_with_goaway(), "twenty thousand went through");
    others_are_served(&webhook);
    webhook
        .until("nothing is left of them", || webhook.metric("stowplan_admission_in_flight") == 0.0);
}

/// A ClientHello of TLS 1.0 to 1.2 form, without extensions.
fn client_hello(record: [u8; 2], version: [u8; 2], suites: &[[u8; 2]]) -> Vec<u8> {
    let suites = suites.concat();
    let mut body = version.to_vec();
    body.extend([7; 32]);
    body.push(0);
    body.extend(u16::try_from(suites.len()).unwrap().to_be_bytes());
    body.extend(suites);
    body.extend([1, 0]);
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let handshake = [&[1], &length[1..], &body].concat();
    let length = u16::try_from(handshake.len()).unwrap().to_be_bytes();
    [&[22], &record[..], &length, &handshake].concat()
}

#[test]
fn old_versions_and_weak_suites_are_refused() {
    let webhook = Webhook::start();
    let rsa_aes_sha = [0x00, 0x2f];
    let rc4 = [0x00, 0x05];
    let triple_des = [0x00, 0x0a];
    let good = [0xc0, 0x2b];
    for (what, hello) in [
        ("TLS 1.0", client_hello([3, 1], [3, 1], &[rsa_aes_sha, good])),
        ("TLS 1.1", client_hello([3, 1], [3, 2], &[rsa_aes_sha, good])),
        ("SSL 3", client_hello([3, 0], [3, 0], &[rc4])),
        ("weak suites", client_hello([3, 1], [3, 3], &[rsa_aes_sha, rc4, triple_des])),
        ("no TLS", b"POST /mutate HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
    ] {
        let mut stream = TcpStream::connect(webhook.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&hello).unwrap();
        let mut answer = Vec::new();
        // A reset is an answer too.
        let _ = stream.read_to_end(&mut answer);
        // Nothing, or an alert that is fatal: never a ServerHello (22).
        assert!(answer.is_empty() || (answer[0] == 21 && answer[5] == 2), "{what}: {answer:?}");
    }
    assert!(webhook.closed("handshake") >= 4.0);
    others_are_served(&webhook);
}

#[test]
fn handshakes_without_measure_are_cut() {
    let webhook = Webhook::start();
    // A message of 16 MiB, as a chain of client certificates might be, in records of 16 KiB.
    let mut stream = TcpStream::connect(webhook.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.extend([1, 0xff, 0xff, 0xff]);
    record.resize(5 + 0x4000, 0);
    let mut next = vec![22, 3, 1, 0x40, 0];
    next.resize(5 + 0x4000, 0);
    let _ = stream.write_all(&record);
    let _ = (0..1024).try_for_each(|_| stream.write_all(&next));
    assert!(ends(&mut stream));
    assert!(webhook.peak_memory() < 128 * 1024 * 1024);
    others_are_served(&webhook);
}

#[test]
fn no_server_name_is_no_problem() {
    let webhook = Webhook::start();
    // An address is never sent as a server name.
    let config = config(&webhook.authority, "http/1.1");
    must_serve(&mut Connection::dial(webhook.address, config, "127.0.0.1").unwrap());
}

#[test]
fn renegotiation_is_refused() {
    let webhook = Webhook::start();
    // The only client that can still be asked for it.
    let client = std::process::Command::new("timeout")
        .args(["60", "openssl", "s_client", "-tls1_2", "-connect", &webhook.address.to_string()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let mut client = client.expect("openssl is needed (.ci/run says so)");
    let mut input = client.stdin.take().unwrap();
    input.write_all(b"R\n").unwrap();
    // It ends by itself when it is refused. Its input stays open for as long.
    let output = client.wait_with_output().unwrap();
    drop(input);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("RENEGOTIATING"), "{printed}");
    assert!(printed.contains("no renegotiation") || !output.status.success(), "{printed}");
    others_are_served(&webhook);
}
