use tokio::time::{Instant, timeout};

use super::*;
use crate::controller::fake::{Api as FakeApi, Call, Objects, Reply};

const NAMESPACE: &str = "stowplan-system";
const SECRETS: &str = "/api/v1/namespaces/stowplan-system/secrets";

/// An API server with Secrets and webhook configurations.
#[derive(Clone, Default)]
struct Server {
    objects: Objects,
    /// How many of the next writes fail.
    conflicts: Arc<Mutex<usize>>,
}

impl Server {
    /// With the two webhook configurations, as the chart renders them.
    fn new() -> Self {
        let server = Self::default();
        let service = json!({"name": "stowplan-webhook", "namespace": NAMESPACE});
        let entry = |name: &str| json!({"name": name, "clientConfig": {"service": service}});
        let other = json!({"name": "other", "clientConfig": {"url": "https://other"}});
        let configuration = json!({
            "metadata": {"name": "stowplan", "resourceVersion": "1"},
            "webhooks": [entry("a.stowplan.dev"), other, entry("b.stowplan.dev")],
        });
        for kind in CONFIGURATIONS {
            server.objects.put(&format!("{}/stowplan", path_of(kind)), &configuration);
        }
        server
    }

    fn secret(&self, name: &str) -> Option<Value> {
        self.objects.get(&format!("{SECRETS}/{name}"))
    }

    fn answer(&self, call: &Call) -> Reply {
        if call.query.contains("watch=") || call.query.contains("fieldSelector") {
            return Reply::Hang;
        }
        let is_write = call.method != "GET" && !call.path.contains("events");
        let mut conflicts = self.conflicts.lock().unwrap();
        if is_write && *conflicts > 0 {
            *conflicts -= 1;
            return Reply::status(409, "Conflict");
        }
        self.objects.answer(call)
    }

    /// All caBundles of the Service's webhooks, decoded.
    fn bundles(&self) -> Vec<String> {
        let mut bundles = Vec::new();
        for kind in CONFIGURATIONS {
            let object = self.objects.get(&format!("{}/stowplan", path_of(kind))).unwrap();
            for index in [0, 2] {
                let bundle = object["webhooks"][index]["clientConfig"]["caBundle"].as_str();
                let bundle = BASE64.decode(bundle.unwrap_or_default()).unwrap();
                bundles.push(String::from_utf8(bundle).unwrap());
            }
            assert_eq!(object["webhooks"][1]["clientConfig"]["caBundle"], Value::Null);
        }
        bundles
    }
}

fn data(secret: &Value, key: &str) -> String {
    let text = secret["data"][key].as_str().unwrap_or_default();
    String::from_utf8(BASE64.decode(text).unwrap()).unwrap()
}

fn keeper(api: &FakeApi) -> Keeper {
    let metrics = Arc::new(Metrics::new());
    let leadership = Leadership::none();
    leadership.set(Some(Instant::now() + Duration::from_secs(3600)));
    let namespace = Some(NAMESPACE.to_owned());
    Keeper {
        settings: Settings {
            ca_secret: "stowplan-ca".to_owned(),
            secret: "stowplan-tls".to_owned(),
            service: "stowplan-webhook".to_owned(),
            configuration: "stowplan".to_owned(),
            terms: Terms::default(),
            regarding: ObjectReference { namespace, ..ObjectReference::default() },
        },
        client: api.client(),
        namespace: NAMESPACE.to_owned(),
        leadership,
        events: Events::start(api.client(), "controller-0".to_owned(), Arc::clone(&metrics)),
        clock: Arc::new(Clock::new(Arc::clone(&metrics))),
        metrics,
        published: Mutex::default(),
    }
}

fn start() -> (Server, FakeApi, Keeper) {
    let server = Server::new();
    let answering = server.clone();
    let api = FakeApi::new(move |call| answering.answer(call));
    let keeper = keeper(&api);
    (server, api, keeper)
}

async fn look(keeper: &Keeper) -> Result<Looked, String> {
    keeper.look(&mut Vec::new()).await
}

/// The writes of an API server, as verb and path.
fn writes(api: &FakeApi) -> Vec<String> {
    let calls = api.writes().into_iter().filter(|call| call.method != "GET");
    calls.map(|call| format!("{} {}", call.method, call.path)).collect()
}

#[tokio::test]
async fn what_is_lost_or_rubbish_is_made_again_and_conflicts_are_read_again() {
    let (server, api, keeper) = start();
    assert_eq!(look(&keeper).await.unwrap(), Looked::HasWritten);
    let before = writes(&api);
    assert_eq!(look(&keeper).await.unwrap(), Looked::Settled);
    assert_eq!(writes(&api), before, "nothing is left to do");
    let ca = server.secret("stowplan-ca").unwrap();
    let first = server.secret("stowplan-tls").unwrap();

    // The certificate's Secret is deleted: signed again by the same CA.
    server.objects.remove(&format!("{SECRETS}/stowplan-tls"));
    *server.conflicts.lock().unwrap() = 3;
    look(&keeper).await.unwrap();
    let second = server.secret("stowplan-tls").unwrap();
    assert_ne!(data(&first, "tls.crt"), data(&second, "tls.crt"));
    assert_eq!(server.secret("stowplan-ca").unwrap()["data"], ca["data"]);

    let mut broken = second.clone();
    for (key, value) in [
        ("tls.crt", BASE64.encode("rubbish")),
        ("tls.crt", "not base64".to_owned()),
        ("tls.key", BASE64.encode(data(&first, "tls.key"))),
        ("tls.key", BASE64.encode(vec![b'x'; 256 * 1024])),
    ] {
        broken["data"][key] = json!(value);
        broken["metadata"]["resourceVersion"] = json!("1");
        server.objects.put(&format!("{SECRETS}/stowplan-tls"), &broken);
        let mut logged = Vec::new();
        keeper.look(&mut logged).await.unwrap();
        let present = server.secret("stowplan-tls").unwrap();
        assert_ne!(present["data"], broken["data"], "{key}");
        assert_eq!(logged, [""; 0], "it is good in the end");
        broken = present;
    }

    // The CA is unreadable: a new one is trusted beside it, and signs later.
    let mut broken = ca.clone();
    broken["data"]["ca.key"] = json!(BASE64.encode("rubbish"));
    server.objects.put(&format!("{SECRETS}/stowplan-ca"), &broken);
    let before = server.secret("stowplan-tls").unwrap();
    look(&keeper).await.unwrap();
    let present = server.secret("stowplan-ca").unwrap();
    let both = [data(&present, "ca.crt"), data(&ca, "ca.crt")];
    for bundle in server.bundles() {
        assert!(both.iter().all(|certificate| bundle.contains(certificate)), "{bundle}");
    }
    assert_eq!(server.secret("stowplan-tls").unwrap(), before);
}

#[tokio::test]
async fn a_foreign_secret_is_reported_and_nothing_is_written() {
    for name in ["stowplan-ca", "stowplan-tls"] {
        let (server, api, keeper) = start();
        let labels = json!({"app.kubernetes.io/managed-by": "stowplan"});
        let metadata = json!({"name": name, "resourceVersion": "1", "labels": labels});
        let foreign = json!({"metadata": metadata, "data": {"tls.crt": "", "tls.key": ""}});
        server.objects.put(&format!("{SECRETS}/{name}"), &foreign);
        look(&keeper).await.unwrap();
        look(&keeper).await.unwrap();
        assert_eq!(writes(&api), [""; 0]);
        assert_eq!(server.secret(name).unwrap(), foreign);
        assert_eq!(keeper.metrics.foreign_secrets.get(), 1);
        while api.events().is_empty() {
            tokio::task::yield_now().await;
        }
        let events = api.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0]["reason"], "ForeignSecret");
        let note = format!("Secret stowplan-system/{name} is not stowplan's");
        assert!(api.notes()[0].starts_with(&note));

        // Once it is deleted, there is nothing in the way.
        server.objects.remove(&format!("{SECRETS}/{name}"));
        look(&keeper).await.unwrap();
        assert_eq!(keeper.metrics.foreign_secrets.get(), 0);
        assert!(server.secret("stowplan-tls").is_some());
    }
}

/// The problem of a look, if each PATCH is answered like this.
async fn problem_with(reply: impl Fn() -> Reply + Send + 'static) -> String {
    let api = patched(reply);
    look(&keeper(&api)).await.unwrap_err()
}

fn patched(reply: impl Fn() -> Reply + Send + 'static) -> FakeApi {
    let server = Server::new();
    FakeApi::new(move |call| match &*call.method {
        "PATCH" => reply(),
        _ => server.answer(call),
    })
}

#[tokio::test]
async fn without_the_lease_nothing_is_written_and_a_refused_write_is_an_error_with_its_reason() {
    let (_, api, keeper) = start();
    keeper.leadership.set(None);
    assert_eq!(look(&keeper).await.unwrap_err(), "the lease is not held");
    assert_eq!(writes(&api), [""; 0]);

    let of = |problem| format!("patch mutatingwebhookconfigurations: {problem}");
    let refused = problem_with(|| Reply::status(403, "Forbidden")).await;
    assert_eq!(refused, of("because of Forbidden (403)"));
    // An invalid configuration is no conflict.
    let status = json!({"kind": "Status", "message": "matchConditions: invalid",
        "details": {"causes": [{"field": "webhooks[0].matchConditions"}]}});
    let invalid = problem_with(move || Reply::json(422, &status)).await;
    assert_eq!(invalid, of("matchConditions: invalid (422)"));
}

/// Another program that writes the caBundles: each further write waits for longer.
#[tokio::test(start_paused = true)]
async fn a_dispute_about_the_bundles_has_pauses() {
    // As if it was overwritten at once.
    let api = patched(|| Reply::json(200, &json!({})));
    let _ = timeout(Duration::from_secs(300), keeper(&api).keep()).await;
    let patches = writes(&api).into_iter().filter(|write| write.starts_with("PATCH")).count();
    assert!((24..=24 * 2 * 15).contains(&patches), "{patches}");
}
