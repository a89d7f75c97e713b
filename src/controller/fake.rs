//! A fake API server for tests: a real client without a network.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) content_type: String,
    pub(crate) body: Value,
    /// When it was received.
    pub(crate) at: Instant,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Reply {
    Answer {
        code: u16,
        retry_after: Option<&'static str>,
        body: Vec<u8>,
    },
    /// A status code and a body, a second later.
    Late(u16, Value),
    /// Closes the connection without an answer.
    Drop,
    /// Never answers.
    Hang,
}

impl Reply {
    pub(crate) fn json(code: u16, body: &Value) -> Self {
        Self::Answer { code, retry_after: None, body: body.to_string().into_bytes() }
    }

    /// A `Status` object as the API server answers it.
    pub(crate) fn status(code: u16, reason: &str) -> Self {
        let message = format!("because of {reason}");
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "details": {}, "code": code,
        });
        Self::json(code, &status)
    }

    /// A list of these objects, whatever their kind.
    pub(crate) fn list(items: &[Value]) -> Self {
        let metadata = json!({"resourceVersion": "1"});
        let list =
            json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items});
        Self::json(200, &list)
    }
}

/// A node in this version.
pub(crate) fn node(name: &str, version: u32, labels: &Value) -> Value {
    let (uid, version) = (format!("uid-{name}"), version.to_string());
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": uid, "labels": labels, "resourceVersion": version},
    })
}

/// Objects by their paths, which are read and written as those of an API server.
#[derive(Clone, Default)]
pub(crate) struct Objects(Arc<Mutex<BTreeMap<String, Value>>>);

impl Objects {
    pub(crate) fn put(&self, path: &str, object: &Value) {
        self.0.lock().unwrap().insert(path.to_owned(), object.clone());
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().get(path).cloned()
    }

    pub(crate) fn remove(&self, path: &str) {
        self.0.lock().unwrap().remove(path);
    }

    /// Carries a request out. A write whose version is not the present one is a conflict.
    pub(crate) fn answer(&self, call: &Call) -> Reply {
        let mut objects = self.0.lock().unwrap();
        match (&*call.method, objects.get_mut(&call.path)) {
            ("GET", Some(object)) => Reply::json(200, object),
            ("POST", _) => {
                let name = call.body["metadata"]["name"].as_str().unwrap();
                let path = format!("{}/{name}", call.path);
                if objects.contains_key(&path) {
                    return Reply::status(409, "AlreadyExists");
                }
                let mut object = call.body.clone();
                object["metadata"]["resourceVersion"] = json!("1");
                objects.insert(path, object.clone());
                Reply::json(201, &object)
            }
            ("PUT", Some(object)) => {
                let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
                if version(object) != version(&call.body) {
                    return Reply::status(409, "Conflict");
                }
                let next: u32 = version(object).as_str().unwrap().parse().unwrap();
                *object = call.body.clone();
                object["metadata"]["resourceVersion"] = json!((next + 1).to_string());
                Reply::json(200, object)
            }
            ("PATCH", Some(object)) => {
                let patch: json_patch::Patch = serde_json::from_value(call.body.clone()).unwrap();
                match json_patch::patch(object, &patch) {
                    Ok(()) => Reply::json(200, object),
                    Err(_) => Reply::status(422, "Invalid"),
                }
            }
            _ => Reply::status(404, "NotFound"),
        }
    }
}

type Answer = dyn FnMut(&Call) -> Reply + Send;

#[derive(Clone)]
pub(crate) struct Api {
    answer: Arc<Mutex<Answer>>,
    calls: Arc<Mutex<Vec<Call>>>,
    /// The number of requests in flight, and its maximum so far.
    load: Arc<Mutex<(usize, usize)>>,
}

impl Api {
    pub(crate) fn new(answer: impl FnMut(&Call) -> Reply + Send + 'static) -> Self {
        Self { answer: Arc::new(Mutex::new(answer)), calls: Arc::default(), load: Arc::default() }
    }

    /// The maximum number of requests that were in flight at once.
    pub(crate) fn max_concurrency(&self) -> usize {
        self.load.lock().unwrap().1
    }

    /// All requests so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// All requests so far, except those that record events.
    pub(crate) fn writes(&self) -> Vec<Call> {
        let calls = self.calls();
        calls.into_iter().filter(|call| !call.path.contains("/events")).collect()
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        let calls = self.calls().into_iter();
        calls.filter(|call| call.path.contains("/events")).map(|call| call.body).collect()
    }

    /// The notes of all events so far.
    pub(crate) fn notes(&self) -> Vec<String> {
        let events = self.events().into_iter();
        events.map(|event| event["note"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { api.serve(request).await }
        });
        Client::new(service, "default")
    }

    async fn serve(&self, request: Request<Body>) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let content_type = head.headers.get("content-type");
        let call = Call {
            at: Instant::now(),
            method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            content_type: content_type.map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default(),
            body: if body.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&body).unwrap()
            },
        };
        self.calls.lock().unwrap().push(call.clone());
        let reply = (self.answer.lock().unwrap())(&call);
        let _counted = Counted::new(&self.load);
        match reply {
            Reply::Late(code, body) => {
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                Ok(response(code, body.to_string().into_bytes()))
            }
            Reply::Hang => std::future::pending().await,
            Reply::Drop => Err(std::io::ErrorKind::ConnectionReset.into()),
            Reply::Answer { code, retry_after, body } => {
                let mut response = response(code, body);
                if let Some(value) = retry_after {
                    response.headers_mut().insert("retry-after", value.parse().unwrap());
                }
                Ok(response)
            }
        }
    }
}

fn response(code: u16, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code.try_into().unwrap();
    response
}

struct Counted(Arc<Mutex<(usize, usize)>>);

impl Counted {
    fn new(load: &Arc<Mutex<(usize, usize)>>) -> Self {
        let mut now = load.lock().unwrap();
        now.0 += 1;
        now.1 = now.1.max(now.0);
        Self(Arc::clone(load))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.lock().unwrap().0 -= 1;
    }
}
