//! Clients that take more than their share: of bytes, of time, of connections.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use super::client::{
    Connection, ends, good_review, head, must_serve, others_are_served, pause, post,
};
use super::process::{NAME, PATIENCE, Start, Webhook};

const MIB: usize = 1024 * 1024;

#[test]
fn an_announced_8_mib_body_is_413_before_it_is_read() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    // Not one byte of it is sent: the answer cannot have waited for any.
    let answer = connection.call(head("10s", 8 * MIB).as_bytes());
    assert_eq!(answer.status, 413);
    assert!(answer.closes() && connection.is_ended());
    // A client that asks first (Expect: 100-continue) is refused as well.
    let mut connection = Connection::open(&webhook);
    let asking = head("10s", 8 * MIB).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(connection.call(asking.as_bytes()).status, 413);
    others_are_served(&webhook);
}

#[test]
fn a_chunked_body_is_cut_where_it_grows_past_the_cap() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    let head = format!(
        "POST /mutate HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    connection.send(head.as_bytes()).unwrap();
    let chunk = [format!("{MIB:x}\r\n").as_bytes(), &vec![b' '; MIB], b"\r\n"].concat();
    // 64 MiB, but the server stops reading before. Its answer arrives all the same: it is not lost
    // to a reset.
    let sent = (0..64).take_while(|_| connection.send(&chunk).is_ok()).count();
    let answer = connection.answer().unwrap();
    assert_eq!(answer.status, 413);
    assert!(answer.closes() && connection.is_ended());
    assert!(webhook.peak_memory() < 128 * MIB as u64, "{} after {sent} MiB", webhook.peak_memory());
    others_are_served(&webhook);
}

#[test]
fn huge_bodies_share_a_budget_and_do_not_crowd_out_ordinary_pods() {
    // The memory limit of the chart.
    let webhook = Start::new().argument("--memory-limit=256Mi").run();
    let clients = 200;
    // Each announces 6.9 MiB and sends the first of them: 200 MiB, of which few are read at once.
    let all_sent = Arc::new(Barrier::new(clients + 1));
    let threads: Vec<_> = (0..clients)
        .map(|_| {
            let all_sent = Arc::clone(&all_sent);
            let mut connection = Connection::open(&webhook);
            thread::spawn(move || {
                connection.send(head("20s", 69 * MIB / 10).as_bytes()).unwrap();
                let sent = connection.send(&vec![b' '; MIB]);
                all_sent.wait();
                sent.and_then(|()| connection.answer())
                    .map(|answer| (answer.status, answer.header("retry-after").map(str::to_owned)))
            })
        })
        .collect();
    all_sent.wait();
    others_are_served(&webhook);
    let answers: Vec<_> =
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
    let refused = answers.iter().filter(|answer| **answer == (503, Some("1".to_owned()))).count();
    let late = answers.iter().filter(|answer| answer.0 == 408).count();
    assert_eq!(refused + late, clients, "{answers:?}");
    assert!(late <= 34 && late > 0, "{late} bodies were held at once");
    assert!(webhook.peak_memory() < 256 * MIB as u64, "{}", webhook.peak_memory());
    others_are_served(&webhook);
}

#[test]
fn a_stalled_body_is_cut_at_the_calls_own_timeout() {
    let webhook = Webhook::start();
    let body = good_review();
    let mut connection = Connection::open(&webhook);
    connection.send(head("1s", body.len()).as_bytes()).unwrap();
    connection.send(&body[..body.len() / 2]).unwrap();
    others_are_served(&webhook);
    let answer = connection.answer().unwrap();
    assert_eq!(answer.status, 408);
    assert!(answer.closes() && connection.is_ended());
    // A body that trickles is cut as well.
    let mut connection = Connection::open(&webhook);
    connection.send(head("1s", body.len()).as_bytes()).unwrap();
    let trickled = body.iter().take(30).take_while(|byte| {
        pause(50);
        connection.send(&[**byte]).is_ok()
    });
    assert_eq!(trickled.count(), 30, "it gets an answer before it is cut");
    assert_eq!(connection.answer().unwrap().status, 408);
    assert_eq!(webhook.failures("BodyTimeout"), 2.0);
}

#[test]
fn heads_and_handshakes_that_do_not_arrive_are_cut() {
    let webhook = Webhook::start();
    let mut idle = Connection::open(&webhook);
    must_serve(&mut idle);
    let begun = Instant::now();
    let bare = TcpStream::connect(webhook.address).unwrap();
    let mut half = TcpStream::connect(webhook.address).unwrap();
    // The beginning of a ClientHello that has 512 bytes.
    half.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).unwrap();
    let mut begun_head = Connection::open(&webhook);
    begun_head.send(b"POST /mut").unwrap();
    let mut trickling = Connection::open(&webhook);
    let trickle = thread::spawn(move || {
        let request = post(&good_review());
        for byte in &request {
            pause(200);
            if trickling.send(&[*byte]).is_err() {
                return true;
            }
        }
        false
    });
    others_are_served(&webhook);
    for mut stream in [bare, half] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(ends(&mut stream));
    }
    assert!(begun_head.is_ended());
    assert!(trickle.join().unwrap());
    webhook.until("all four counted", || {
        webhook.closed("handshake-timeout") == 2.0 && webhook.closed("head-timeout") == 2.0
    });
    // Their slots are free again; an idle connection is under none of these deadlines.
    webhook.until("all but one ended", || webhook.metric("stowplan_connections") == 1.0);
    pause(6500_u64.saturating_sub(u64::try_from(begun.elapsed().as_millis()).unwrap()));
    must_serve(&mut idle);
}

#[test]
fn silent_connections_give_way_to_those_that_have_something_to_say() {
    // 200 files, of which 128 are not for connections: 72 are.
    let webhook = Start { open_files: Some(200), ..Start::new() }.run();
    let mut regular = Connection::open(&webhook);
    must_serve(&mut regular);
    let mut silent = Vec::new();
    for number in 0..400 {
        silent.push(TcpStream::connect(webhook.address).unwrap());
        if number % 100 == 0 {
            others_are_served(&webhook);
        }
    }
    others_are_served(&webhook);
    must_serve(&mut regular);
    assert!(webhook.closed("crowded") >= 300.0);
    assert!(webhook.metric("stowplan_connections") <= 72.0);
    // A connection with a stalled body counts as silent, too.
    let mut stalled = Vec::new();
    for _ in 0..100 {
        let mut connection = Connection::open(&webhook);
        connection.send(head("20s", 1000).as_bytes()).unwrap();
        stalled.push(connection);
    }
    others_are_served(&webhook);
    must_serve(&mut regular);
    // The admin port has a connection limit of its own, which works in the same way.
    let probes: Vec<_> =
        (0..100).map(|_| TcpStream::connect(webhook.admin_address()).unwrap()).collect();
    assert_eq!(webhook.admin("/livez").status, 200);
    drop((silent, stalled, probes));
    others_are_served(&webhook);
}

#[test]
fn the_accept_loop_survives_having_no_file_descriptors() {
    let webhook = Webhook::start();
    let mut regular = Connection::open(&webhook);
    must_serve(&mut regular);
    let silent: Vec<_> = (0..20).map(|_| Connection::open(&webhook)).collect();
    // Fewer than are open already, of which the silent ones are the last.
    let open = std::fs::read_dir(format!("/proc/{}/fd", webhook.id())).unwrap().count() as u64;
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = |files| Rlimit { current: Some(files), maximum };
    let before = prlimit(Some(webhook.id()), Resource::Nofile, limit(open - 5)).unwrap();
    let mut waiting = TcpStream::connect(webhook.address).unwrap();
    webhook.until("out of descriptors", || webhook.log().contains("cannot accept a connection"));
    assert!(webhook.is_running());
    // Even so, silent connections are closed to make room, and no others.
    others_are_served(&webhook);
    must_serve(&mut regular);
    prlimit(Some(webhook.id()), Resource::Nofile, before).unwrap();
    others_are_served(&webhook);
    assert!(webhook.closed("accept") >= 1.0);
    assert!(webhook.closed("crowded") >= 1.0);
    // The log did not get a line for each attempt.
    let lines = webhook.log().lines().filter(|line| line.contains("cannot accept")).count();
    assert!(lines < 20, "{lines}");
    // The waiting connection is accepted and stays open.
    waiting.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let read = waiting.read(&mut [0; 1]);
    assert!(matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock));
    drop(silent);
}

#[test]
fn an_answer_that_is_not_read_ends_the_connection() {
    let webhook = Webhook::start();
    let mut connection = Connection::open(&webhook);
    connection.tls.sock.set_nonblocking(true).unwrap();
    // Requests without end, and no answer is read, until the buffers are full and the server has
    // waited. How long that takes depends on the machine.
    let request = post(&good_review()).repeat(20);
    let mut sent = 0;
    loop {
        match connection.tls.write(&request[sent % request.len()..]) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if webhook.closed("answer-timeout") > 0.0 {
                    break;
                }
                pause(50);
            }
            Err(_) => break,
        }
    }
    webhook.until("counted", || webhook.closed("answer-timeout") > 0.0);
    others_are_served(&webhook);
}
