//! The writes of each client, by the API server's audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

/// How many kinds of requests are printed for each client.
const SHOWN: usize = 10;

/// How many requests of a kind each client has sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests(BTreeMap<String, BTreeMap<String, u32>>);

impl Requests {
    /// Counts those that were logged after the first `start` bytes.
    pub(crate) fn read(log: &Path, start: u64) -> Result<Self> {
        let mut log = File::open(log)?;
        log.seek(SeekFrom::Start(start))?;
        let mut requests = Self::default();
        for line in BufReader::new(log).lines() {
            // The last one may be half-written.
            if let Ok(event) = serde_json::from_str(&line?) {
                requests.count(&event);
            }
        }
        Ok(requests)
    }

    /// Counts a request that is answered; not watches, which last.
    pub(crate) fn count(&mut self, event: &Value) {
        let (verb, object) = (event["verb"].as_str(), &event["objectRef"]);
        let (Some(verb), Some(resource)) = (verb, object["resource"].as_str()) else { return };
        if event["stage"] != "ResponseComplete" || verb == "watch" {
            return;
        }
        let user = event["user"]["username"].as_str().unwrap_or_default();
        // All nodes are one client.
        let user = if user.starts_with("system:node:") { "system:node" } else { user };
        let part = object["subresource"].as_str().map(|part| format!("/{part}"));
        let refused = event["responseStatus"]["code"].as_u64().filter(|code| *code >= 400);
        let refused = refused.map(|code| format!(" ({code})")).unwrap_or_default();
        let request = format!("{verb} {resource}{}{refused}", part.unwrap_or_default());
        *self.0.entry(user.to_owned()).or_default().entry(request).or_default() += 1;
    }

    /// The clients with their requests, those with the most of them first.
    pub(crate) fn lines(&self, runs: u32) -> Vec<String> {
        let mut clients: Vec<_> =
            self.0.iter().map(|(client, of)| (of.values().sum::<u32>(), client, of)).collect();
        clients.sort_by_key(|(sum, client, _)| (std::cmp::Reverse(*sum), *client));
        let per_run = |count: u32| f64::from(count) / f64::from(runs.max(1));
        let line = |(sum, client, of): (u32, &String, &BTreeMap<String, u32>)| {
            let mut requests: Vec<_> = of.iter().collect();
            requests.sort_by_key(|(request, count)| (std::cmp::Reverse(**count), *request));
            let requests = requests.into_iter().take(SHOWN);
            let requests: Vec<_> = requests
                .map(|(request, count)| format!("{:.1} {request}", per_run(*count)))
                .collect();
            format!("{client}: {:.1} requests a run: {}", per_run(sum), requests.join(", "))
        };
        clients.into_iter().map(line).collect()
    }

    pub(crate) fn print(&self, runs: u32) {
        self.lines(runs).iter().for_each(|line| println!("          {line}"));
    }
}
