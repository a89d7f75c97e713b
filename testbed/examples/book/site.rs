//! mdBook, with links to the files of the repository.
//!
//! Pages link to examples, sources and other documents by relative paths, so that they can be followed
//! on the forge and in an editor. The site has only `docs/`: there, such links lead to the repository.

use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use mdbook_driver::MDBook;
use mdbook_driver::book::Book;
use mdbook_driver::config::Config;
use mdbook_markdown::pulldown_cmark::{Event, Options, Parser, Tag};
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};

/// The branch that the site shows.
const BRANCH: &str = "main";

/// Builds the site into `out`, or into the folder that `book.toml` names. Returns the folder.
pub(crate) fn build(out: Option<&Path>) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?;
    let mut config = Config::from_disk(root.join("book.toml"))?;
    if let Some(out) = out {
        config.build.build_dir = std::path::absolute(out)?;
    }
    // In this process, instead of the command that mdBook would start.
    config.set("preprocessor", toml::Table::new())?;
    let mut book = MDBook::load_with_config(root, config)?;
    book.with_preprocessor(Repository);
    book.build()?;
    Ok(book.build_dir_for("html"))
}

/// Rewrites links that leave the book's sources.
pub(crate) struct Repository;

impl Preprocessor for Repository {
    fn name(&self) -> &str {
        "repository"
    }

    fn run(&self, context: &PreprocessorContext, mut book: Book) -> Result<Book> {
        let html = context.config.html_config().unwrap_or_default();
        let repository = html.git_repository_url.context("book.toml names no repository")?;
        let sources = context.config.book.src.as_path();
        let mut problem = None;
        book.for_each_chapter_mut(|chapter| {
            let Some(path) = &chapter.source_path else { return };
            let page = sources.join(path);
            match rewrite(&chapter.content, &page, sources, &context.root, &repository) {
                Ok(content) => chapter.content = content,
                Err(error) => problem = Some(error.context(page.display().to_string())),
            }
        });
        problem.map_or(Ok(book), Err)
    }
}

/// The text of `page` with links to the repository in place of those that leave `sources`.
pub(crate) fn rewrite(
    text: &str,
    page: &Path,
    sources: &Path,
    root: &Path,
    repository: &str,
) -> Result<String> {
    let mut replaced = text.to_owned();
    for (range, link) in links(text).into_iter().rev() {
        let (path, anchor) = match link.find('#') {
            Some(at) => link.split_at(at),
            None => (&*link, ""),
        };
        if path.is_empty() || path.contains(':') {
            continue;
        }
        let file = normalized(&page.with_file_name(path))
            .with_context(|| format!("{link} leads out of the repository"))?;
        if file.starts_with(sources) {
            continue;
        }
        let kind = match fs::metadata(root.join(&file)) {
            Ok(found) if found.is_dir() => "tree",
            Ok(_) => "blob",
            Err(error) => bail!("{link}: {error}"),
        };
        let at = text[range.clone()]
            .rfind(&format!("]({link})"))
            .with_context(|| format!("{link} is not written as [text](target)"))?;
        let start = range.start + at + "](".len();
        let address = format!("{repository}/{kind}/{BRANCH}/{}{anchor}", file.display());
        replaced.replace_range(start..start + link.len(), &address);
    }
    Ok(replaced)
}

/// The links of a page with their places, in order.
fn links(text: &str) -> Vec<(Range<usize>, String)> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
        .into_offset_iter()
        .filter_map(|(event, range)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some((range, dest_url.into_string()))
            }
            _ => None,
        })
        .collect()
}

/// A relative path without `..`. None if it leads out of the folder in which it starts.
pub(crate) fn normalized(path: &Path) -> Option<PathBuf> {
    let mut result = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if !result.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            part => result.push(part),
        }
    }
    Some(result)
}
