//! Reads lists by pages of a bounded size in bytes.
//!
//! A client reads a page completely before it decodes the first object. The API server bounds the
//! objects of a page, not their bytes, and users can create objects of more than a megabyte. So the
//! number of objects follows from the size of the page before, and a page that is too large is
//! abandoned and requested again with fewer objects.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body as HttpBody, Bytes};
use hyper::{Method, Request, Response, Uri};
use kube::client::Body;
use tower::BoxError;

/// The most objects in a page.
pub(super) const MOST_OBJECTS: u32 = 100;

/// The bytes that a page should have.
const USUAL: usize = 2 * 1024 * 1024;

/// The most bytes of a page with more than one object.
const MOST: usize = 2 * USUAL;

/// The size of the pages of one watch: the most objects in the next page.
#[derive(Clone, Debug)]
pub(super) struct Pages(Arc<AtomicU32>);

impl Pages {
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicU32::new(MOST_OBJECTS)))
    }

    /// Sends a request by `send`. If it is for a page, the answer's body is that page, which may have
    /// fewer objects than requested.
    pub(super) async fn send<B, F>(
        &self,
        request: Request<Body>,
        send: impl Fn(Request<Body>) -> F,
    ) -> Result<Response<Either<Full<Bytes>, B>>, BoxError>
    where
        B: HttpBody<Data = Bytes, Error = BoxError> + Unpin,
        F: Future<Output = Result<Response<B>, BoxError>>,
    {
        let Some(requested) = requested_objects(&request) else {
            return Ok(send(request).await?.map(Either::Right));
        };
        let (head, _) = request.into_parts();
        loop {
            let objects = requested.min(self.0.load(Ordering::Relaxed));
            let mut head = head.clone();
            head.uri = with_limit(&head.uri, objects)?;
            let answer = send(Request::from_parts(head, Body::from(Bytes::new()))).await?;
            if !answer.status().is_success() {
                return Ok(answer.map(Either::Right));
            }
            let (head, body) = answer.into_parts();
            let most = if objects == 1 { usize::MAX } else { MOST };
            let (text, next) = match read(body, most).await? {
                Some(text) => {
                    let next = u64::from(objects) * USUAL as u64 / (text.len() as u64).max(1);
                    (Some(text), u32::try_from(next).unwrap_or(MOST_OBJECTS))
                }
                None => (None, objects / 4),
            };
            // A request for one object, which only asks whether a kind is served, says nothing
            // about pages.
            if requested > 1 {
                self.0.store(next.clamp(1, MOST_OBJECTS), Ordering::Relaxed);
            }
            if let Some(text) = text {
                return Ok(Response::from_parts(head, Either::Left(Full::from(text))));
            }
        }
    }
}

/// The number of objects that a request for a page allows; `None`: it is another request.
fn requested_objects(request: &Request<Body>) -> Option<u32> {
    let mut limits = pairs(request.uri()).filter_map(|pair| pair.strip_prefix("limit="));
    let limit = limits.next().filter(|_| request.method() == Method::GET)?;
    limit.parse().ok().filter(|limit| *limit > 0)
}

fn with_limit(uri: &Uri, objects: u32) -> Result<Uri, BoxError> {
    let pairs = pairs(uri).map(|pair| match pair.starts_with("limit=") {
        true => format!("limit={objects}"),
        false => pair.to_owned(),
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{}?{query}", uri.path()).parse()?);
    Ok(Uri::from_parts(parts)?)
}

fn pairs(uri: &Uri) -> impl Iterator<Item = &str> {
    uri.query().unwrap_or_default().split('&')
}

/// Reads a body; `None` if it has more than `most` bytes.
async fn read<B>(mut body: B, most: usize) -> Result<Option<Bytes>, BoxError>
where
    B: HttpBody<Data = Bytes, Error = BoxError> + Unpin,
{
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if text.len() + data.len() > most {
            return Ok(None);
        }
        text.extend_from_slice(&data);
    }
    Ok(Some(text.into()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http_body_util::StreamBody;
    use http_body_util::combinators::UnsyncBoxBody;
    use hyper::StatusCode;
    use hyper::body::Frame;

    use super::*;

    type Answered = UnsyncBoxBody<Bytes, BoxError>;

    /// A server of objects of these sizes. It notes the first object and the limit of each request.
    #[derive(Default)]
    struct Server {
        sizes: Vec<usize>,
        requests: Mutex<Vec<(usize, usize)>>,
        fails: bool,
    }

    impl Server {
        async fn answer(&self, request: Request<Body>) -> Result<Response<Answered>, BoxError> {
            let value = |key: &str| -> Option<usize> {
                pairs(request.uri()).find_map(|pair| pair.strip_prefix(key))?.parse().ok()
            };
            let (start, limit) = (value("continue=").unwrap_or(0), value("limit=").unwrap_or(0));
            self.requests.lock().unwrap().push((start, limit));
            let bytes = self.sizes.iter().skip(start).take(limit).sum();
            let mut answer = Response::new(body(&vec![b'x'; bytes]));
            if self.fails {
                *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            }
            Ok(answer)
        }

        /// Reads all pages; returns the bytes of each.
        async fn list(&self, pages: &Pages) -> Vec<usize> {
            let mut read = Vec::new();
            let mut start = 0;
            while start < self.sizes.len() {
                let uri = format!("/api/v1/pods?&limit={MOST_OBJECTS}&continue={start}");
                let answer = pages.send(get(&uri), |request| self.answer(request)).await.unwrap();
                read.push(answer.into_body().collect().await.unwrap().to_bytes().len());
                start += self.requests.lock().unwrap().last().unwrap().1;
            }
            read
        }
    }

    /// In parts, as from a socket.
    fn body(text: &[u8]) -> Answered {
        let parts: Vec<_> = text.chunks(65_536).map(Bytes::copy_from_slice).collect();
        let frames = parts.into_iter().map(|part| Ok(Frame::data(part)));
        StreamBody::new(futures::stream::iter(frames)).boxed_unsync()
    }

    fn get(uri: &str) -> Request<Body> {
        Request::get(uri).body(Body::from(Bytes::new())).unwrap()
    }

    #[tokio::test]
    async fn pages_of_large_objects_have_few() {
        const MEBIBYTE: usize = 1024 * 1024;
        let large = [vec![10_000; 300], vec![MEBIBYTE; 20], vec![10_000; 300]].concat();
        let server = Server { sizes: large, ..Server::default() };
        let pages = Pages::new();
        let read = server.list(&pages).await;
        assert_eq!(read.iter().sum::<usize>(), server.sizes.iter().sum::<usize>());
        assert!(read.iter().all(|bytes| *bytes <= MOST), "{read:?}");
        let requests = server.requests.lock().unwrap().len();
        assert!(requests <= 30, "{requests} requests for {} pages", read.len());
    }

    #[tokio::test]
    async fn one_object_is_read_whatever_its_size_and_small_ones_in_full_pages() {
        let large = vec![3 * MOST, 10, 2 * MOST];
        for (sizes, pages) in [(large.clone(), large), (vec![1_000; 1_000], vec![100_000; 10])] {
            let server = Server { sizes, ..Server::default() };
            assert_eq!(server.list(&Pages::new()).await, pages);
        }
    }

    #[tokio::test]
    async fn failures_and_other_requests_pass_unchanged() {
        let server = Server { sizes: vec![MOST; 9], fails: true, ..Server::default() };
        let pages = Pages::new();
        for uri in ["/api/v1/pods?limit=7", "/api/v1/pods?watch=true"] {
            let answer = pages.send(get(uri), |request| server.answer(request)).await.unwrap();
            assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
        assert_eq!(*server.requests.lock().unwrap(), [(0, 7), (0, 0)]);
    }

    #[test]
    fn only_the_limit_of_a_uri_changes() {
        for uri in ["/api/v1/pods?limit=50", "/a?&selector=a%3Db&limit=50&continue=e%3D"] {
            let changed = with_limit(&uri.parse().unwrap(), 4).unwrap();
            assert_eq!(changed.to_string(), uri.replace("limit=50", "limit=4"));
        }
        for (uri, expected) in [
            ("/a?limit=50", Some(50)),
            ("/a?limit=0", None),
            ("/a?limit=x", None),
            ("/a?watch=true", None),
        ] {
            assert_eq!(requested_objects(&get(uri)), expected, "{uri}");
        }
        let post = Request::post("/a?limit=50").body(Body::from(Bytes::new())).unwrap();
        assert_eq!(requested_objects(&post), None);
    }
}
