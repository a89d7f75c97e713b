//! Writes XML, which is also what browsers read as HTML. Names and messages come from users: quick-xml
//! escapes every text and every value of an attribute.

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

    /// Returns the document.
    pub(super) fn finish(self) -> String {
        String::from_utf8(self.0.into_inner()).expect("all that is written is UTF-8") + "\n"
    }

    fn write(&mut self, event: Event<'_>) {
        self.0.write_event(event).expect("memory takes all that is written");
    }

    /// Writes an element with what `inner` writes.
    pub(super) fn element(
        &mut self,
        name: &str,
        attributes: Attributes<'_>,
        inner: impl FnOnce(&mut Self),
    ) {
        let start = BytesStart::new(name).with_attributes(attributes.iter().copied());
        self.write(Event::Start(start));
        inner(self);
        self.write(Event::End(BytesEnd::new(name)));
    }

    /// Writes an element without content.
    pub(super) fn empty(&mut self, name: &str, attributes: Attributes<'_>) {
        let element = BytesStart::new(name).with_attributes(attributes.iter().copied());
        self.write(Event::Empty(element));
    }

    /// Writes an element with a text.
    pub(super) fn text(&mut self, name: &str, attributes: Attributes<'_>, text: &str) {
        self.element(name, attributes, |markup| markup.write(Event::Text(BytesText::new(text))));
    }

    /// Writes a part of the program's own, as it is.
    pub(super) fn raw(&mut self, text: &'static str) {
        self.write(Event::Text(BytesText::from_escaped(text)));
    }

    /// Writes a line feed, for the readers of differences.
    pub(super) fn line(&mut self) {
        self.raw("\n");
    }
}
