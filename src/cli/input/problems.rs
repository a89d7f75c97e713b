//! The problems of an input, reported together.

use std::fmt;

/// The most problems that are reported.
pub(super) const MAX_PROBLEMS: usize = 50;

/// All problems of the input.
#[derive(Debug, Default)]
pub(crate) struct Problems(pub(super) Vec<String>);

impl Problems {
    pub(crate) fn push(&mut self, problem: String) {
        self.0.push(problem);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// `Ok` if there is no problem.
    ///
    /// # Errors
    /// The problems, at most [`MAX_PROBLEMS`] of them and the number of the others.
    pub(crate) fn into_result(mut self) -> Result<(), Self> {
        let more = self.0.len().saturating_sub(MAX_PROBLEMS);
        if more > 0 {
            self.0.truncate(MAX_PROBLEMS);
            self.0.push(format!("and {more} more problems"));
        }
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Problems {}
