//! The documents as a site: `cargo book` builds `docs/` with mdBook, and `mdbook build` calls
//! `cargo book preprocess` for the links (`book.toml`).

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};
use mdbook_preprocessor::{Preprocessor as _, parse_input};

#[path = "book/site.rs"]
mod site;

/// Builds the documents as a site.
#[derive(Debug, Parser)]
#[command(name = "book")]
struct Cli {
    #[command(subcommand)]
    command: Option<Task>,
    /// The folder of the site, which is replaced [default: target/book]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Called by mdBook: a book from standard input, with its links rewritten, to standard output.
    Preprocess {
        /// `supports RENDERER`: mdBook's question before that, answered by the exit code.
        question: Vec<String>,
    },
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let mut out = io::stdout().lock();
    match cli.command {
        None => writeln!(out, "{}", site::build(cli.out.as_deref())?.display())?,
        Some(Task::Preprocess { question }) if question.is_empty() => {
            let (context, book) = parse_input(io::stdin())?;
            serde_json::to_writer(out, &site::Repository.run(&context, book)?)?;
        }
        // Any renderer can follow a complete address.
        Some(Task::Preprocess { .. }) => {}
    }
    Ok(())
}
