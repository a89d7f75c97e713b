//! The documents as a site: it builds, has every page, and each of its links leads somewhere.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{
    BufferQueue, StartTag, TagToken, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};

#[path = "../../examples/book/site.rs"]
mod site;

/// Where links of the site may lead. The test asks none of them.
const HOSTS: [&str; 8] = [
    "cert-manager.io",
    "github.com",
    "jobset.sigs.k8s.io",
    "kubernetes.io",
    "kueue.sigs.k8s.io",
    "kyverno.io",
    "lws.sigs.k8s.io",
    "volcano.sh",
];

/// The files that may be opened besides by a link, for the page to look as it should.
const LOADED: [(&str, &str); 5] =
    [("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "srcset")];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The parts of a page that are checked.
#[derive(Default)]
struct Page {
    /// The targets of its links.
    links: Vec<String>,
    /// The files without which it does not look as it should.
    loaded: Vec<String>,
    /// The ends that a link to the page can have, behind a `#`.
    anchors: BTreeSet<String>,
}

/// Collects a page from its tags.
#[derive(Default)]
struct Collector(RefCell<Page>);

impl TokenSink for Collector {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        if let TagToken(tag) = token
            && tag.kind == StartTag
        {
            let mut page = self.0.borrow_mut();
            for attribute in &tag.attrs {
                let value = attribute.value.to_string();
                match (&*tag.name, &*attribute.name.local) {
                    ("a", "href") => page.links.push(value),
                    (_, "id") => _ = page.anchors.insert(value),
                    loaded if LOADED.contains(&loaded) => page.loaded.push(value),
                    _ => {}
                }
            }
        }
        TokenSinkResult::Continue
    }
}

fn parse(html: &str) -> Page {
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(html));
    let tokenizer = Tokenizer::new(Collector::default(), TokenizerOpts::default());
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.into_inner()
}

/// The names of the files of a folder that have this extension.
fn names(folder: &Path, extension: &str) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| PathBuf::from(entry.unwrap().file_name()));
    names.filter(|name| name.extension().is_some_and(|it| it == extension)).collect()
}

/// The HTML files of the site, by their paths in it.
fn pages(site: &Path) -> BTreeMap<PathBuf, Page> {
    let page = |name: &PathBuf| parse(&fs::read_to_string(site.join(name)).unwrap());
    names(site, "html").into_iter().map(|name| (name.clone(), page(&name))).collect()
}

/// Returns the reason why a link of a page leads nowhere. None if it leads somewhere.
fn problem(
    page: &Path,
    link: &str,
    site: &Path,
    pages: &BTreeMap<PathBuf, Page>,
) -> Option<String> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    if let Some((scheme, rest)) = path.split_once("://") {
        return foreign(scheme, rest);
    }
    let target = match path {
        "" => page.to_owned(),
        path => match site::normalized(&page.with_file_name(path)) {
            Some(target) => target,
            None => return Some("leads out of the site".to_owned()),
        },
    };
    if !site.join(&target).is_file() {
        return Some("no such file".to_owned());
    }
    let has_anchor = |page: &Page| anchor.is_empty() || page.anchors.contains(anchor);
    match pages.get(&target) {
        Some(page) if !has_anchor(page) => Some("no such heading".to_owned()),
        _ => None,
    }
}

/// Checks an address outside the site in the same way.
fn foreign(scheme: &str, rest: &str) -> Option<String> {
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if scheme != "https" {
        return Some("not https".to_owned());
    }
    if !HOSTS.contains(&host) || rest.chars().any(char::is_whitespace) {
        return Some("a host that is not in the list of this test".to_owned());
    }
    // Own files are here; those of the present branch must be.
    let own = path.strip_prefix("stowplan/stowplan/").unwrap_or_default();
    for (kind, is_kind) in
        [("blob/main/", Path::is_file as fn(&Path) -> bool), ("tree/main/", Path::is_dir)]
    {
        if let Some(file) = own.strip_prefix(kind) {
            return (!is_kind(&root().join(file))).then(|| "not in the repository".to_owned());
        }
    }
    None
}

#[test]
fn the_site_has_every_page_and_every_link_leads_somewhere() {
    let site = site::build(None).unwrap();
    let pages = pages(&site);
    let documents = names(&root().join("docs"), "md").into_iter();
    let mut expected: BTreeSet<_> = documents.map(|name| name.with_extension("html")).collect();
    expected.remove(Path::new("SUMMARY.html"));
    expected.extend(["404.html", "index.html", "toc.html"].map(PathBuf::from));
    let built: BTreeSet<_> = pages.keys().cloned().collect();
    assert_eq!(built, expected, "docs/SUMMARY.md has other pages than docs/");

    let (mut problems, mut checked) = (Vec::new(), 0);
    let used = |host: &str| {
        let start = format!("https://{host}");
        pages.values().flat_map(|page| &page.links).any(|link| link.starts_with(&start))
    };
    for host in HOSTS {
        assert!(used(host), "no page links to {host}: take it out of this test");
    }
    for (name, page) in &pages {
        for link in &page.links {
            checked += 1;
            if let Some(problem) = problem(name, link, &site, &pages) {
                problems.push(format!("{}: {link}: {problem}", name.display()));
            }
        }
        for file in &page.loaded {
            if file.contains("://") || problem(name, file, &site, &pages).is_some() {
                problems.push(format!("{}: loads {file}", name.display()));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(checked > 500, "{checked} links");
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let html = r##"<h2 id="one">One</h2><a href="#one">x</a><img src="https://a/b.png">"##;
    fs::write(folder.path().join("a.html"), html).unwrap();
    let pages = pages(folder.path());
    assert_eq!(pages[Path::new("a.html")].loaded, ["https://a/b.png"]);
    for (link, is_valid) in [
        ("#one", true),
        ("a.html#one", true),
        ("https://kubernetes.io/docs/", true),
        ("https://github.com/stowplan/stowplan/tree/main/docs", true),
        ("#two", false),
        ("b.html", false),
        ("../a.html", false),
        ("a.html#two", false),
        ("http://kubernetes.io/", false),
        ("https://unknown.example/", false),
        ("https://github.com/stowplan/stowplan/blob/main/missing.md", false),
        ("https://github.com/stowplan/stowplan/blob/main/docs", false),
    ] {
        let found = problem(Path::new("a.html"), link, folder.path(), &pages);
        assert_eq!(found.is_none(), is_valid, "{link}: {found:?}");
    }
}

#[test]
fn links_to_files_beside_the_documents_lead_to_the_repository() {
    let text = "[a](../README.md#x), [b](streams.md), [c](https://x/), [d](#e), [t](../docs/tekton.md)\n\n\
                | [e](../examples) |\n|---|\n| `[f](../LICENSE)` [../LICENSE](../LICENSE) |\n";
    let wanted = "[a](https://r/blob/main/README.md#x), [b](streams.md), [c](https://x/), [d](#e), [t](../docs/tekton.md)\n\n\
                  | [e](https://r/tree/main/examples) |\n|---|\n| `[f](../LICENSE)` [../LICENSE](https://r/blob/main/LICENSE) |\n";
    let rewrite = |text: &str| {
        site::rewrite(text, Path::new("docs/page.md"), Path::new("docs"), root(), "https://r")
    };
    assert_eq!(rewrite(text).unwrap(), wanted);
    assert!(rewrite("[a](../missing.md)").unwrap_err().to_string().contains("../missing.md"));
    assert!(rewrite("[a](../../outside.md)").is_err());
}
