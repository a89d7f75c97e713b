//! Writes XML, which is also what browsers read as HTML. Names and messages come from users: quick-xml
//! escapes every text and every value of an attribute.

use std::io;

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};

/// The attributes of an element.
pub(super) type Attributes<'a> = &'a [(&'a str, &'a str)];

/// A document that is being written.
pub(super) struct Markup(Writer<Vec<u8>>);

impl Markup {
    pub(super) fn new() -> Self {
        Self(Writer::new(Vec::new()))
    }

    /// The document.
    ///
    /// # Errors
    /// Never: everything that is written is UTF-8.
    pub(super) fn finish(self) -> io::Result<String> {
        let text = String::from_utf8(self.0.into_inner());
        text.map(|text| text + "\n")
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// An element with what `inner` writes.
    pub(super) fn element(
        &mut self,
        name: &str,
        attributes: Attributes<'_>,
        inner: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let start = BytesStart::new(name).with_attributes(attributes.iter().copied());
        self.0.write_event(Event::Start(start))?;
        inner(self)?;
        self.0.write_event(Event::End(BytesEnd::new(name)))
    }

    /// An element without content.
    pub(super) fn empty(&mut self, name: &str, attributes: Attributes<'_>) -> io::Result<()> {
        let element = BytesStart::new(name).with_attributes(attributes.iter().copied());
        self.0.write_event(Event::Empty(element))
    }

    /// An element with a text.
    pub(super) fn text(
        &mut self,
        name: &str,
        attributes: Attributes<'_>,
        text: &str,
    ) -> io::Result<()> {
        self.element(name, attributes, |markup| {
            markup.0.write_event(Event::Text(BytesText::new(text)))
        })
    }

    /// A part of the program's own, as it is.
    pub(super) fn raw(&mut self, text: &'static str) -> io::Result<()> {
        self.0.write_event(Event::Text(BytesText::from_escaped(text)))
    }

    /// A line feed, for the readers of differences.
    pub(super) fn line(&mut self) -> io::Result<()> {
        self.raw("\n")
    }
}
