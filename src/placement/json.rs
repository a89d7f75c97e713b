//! Writes values as JSON text, in the compact form of `serde_json` and byte for byte the same.
//!
//! `serde_json` looks at each byte of each text and of each field's name for characters to escape. Of a
//! patch these are nearly all bytes, and that took a tenth of a decision. Here a text is looked at many
//! bytes at once, and a field's name is not looked at. What has characters to escape, and numbers, are
//! left to `serde_json`.

use serde::ser::{
    Error as _, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple,
    SerializeTupleStruct, Serializer,
};
use serde_json::Error;

/// Appends a value to `json`.
///
/// # Errors
/// If the value has an enum variant with several fields, a map with a key that is not a text, or raw
/// JSON: the values that stowplan writes have none of these.
pub(crate) fn write(json: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
    value.serialize(Writer { json })
}

/// Appends a text with its quotation marks.
fn write_text(json: &mut Vec<u8>, text: &str) -> Result<(), Error> {
    let is_special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    // Nearly every text has none. Without an early exit, many bytes are compared at once.
    if text.bytes().fold(false, |any, byte| any | is_special(byte)) {
        return serde_json::to_writer(json, text);
    }
    json.reserve(text.len() + 2);
    json.push(b'"');
    json.extend_from_slice(text.as_bytes());
    json.push(b'"');
    Ok(())
}

struct Writer<'j> {
    json: &'j mut Vec<u8>,
}

/// A list, an object or a struct that is being written.
struct Compound<'j> {
    json: &'j mut Vec<u8>,
    is_empty: bool,
    end: u8,
}

impl<'j> Writer<'j> {
    fn begin(self, start: u8, end: u8) -> Compound<'j> {
        self.json.push(start);
        Compound { json: self.json, is_empty: true, end }
    }

    fn delegate(self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        serde_json::to_writer(self.json, value)
    }
}

impl Compound<'_> {
    fn next(&mut self) {
        if !self.is_empty {
            self.json.push(b',');
        }
        self.is_empty = false;
    }

    fn item(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.next();
        write(self.json, value)
    }

    fn finish(self) {
        self.json.push(self.end);
    }
}

/// The methods for types that `serde_json` writes.
macro_rules! delegated {
    ($($method:ident: $type:ty,)*) => {
        $(fn $method(self, value: $type) -> Result<(), Error> {
            self.delegate(&value)
        })*
    };
}

impl<'j> Serializer for Writer<'j> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Compound<'j>;
    type SerializeTuple = Compound<'j>;
    type SerializeTupleStruct = Compound<'j>;
    type SerializeTupleVariant = Impossible<(), Error>;
    type SerializeMap = Compound<'j>;
    type SerializeStruct = Compound<'j>;
    type SerializeStructVariant = Impossible<(), Error>;

    delegated! {
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
        serialize_f32: f32,
        serialize_f64: f64,
        serialize_char: char,
        serialize_bytes: &[u8],
    }

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.json.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_str(self, text: &str) -> Result<(), Error> {
        write_text(self.json, text)
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.json.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        let mut object = self.begin(b'{', b'}');
        SerializeStruct::serialize_field(&mut object, variant, value)?;
        SerializeStruct::end(object)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Compound<'j>, Error> {
        Ok(self.begin(b'[', b']'))
    }

    fn serialize_tuple(self, _: usize) -> Result<Compound<'j>, Error> {
        Ok(self.begin(b'[', b']'))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Compound<'j>, Error> {
        Ok(self.begin(b'[', b']'))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Impossible<(), Error>, Error> {
        Err(Error::custom(format_args!("{name}::{variant} has several fields")))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Compound<'j>, Error> {
        Ok(self.begin(b'{', b'}'))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Compound<'j>, Error> {
        // The names of `serde_json` for raw JSON and for numbers that it keeps as text.
        if name.starts_with("$serde_json::") {
            return Err(Error::custom(format_args!("{name} is not written here")));
        }
        Ok(self.begin(b'{', b'}'))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Impossible<(), Error>, Error> {
        Err(Error::custom(format_args!("{name}::{variant} has several fields")))
    }
}

/// The traits of lists.
macro_rules! lists {
    ($($list:ident: $method:ident,)*) => {
        $(impl $list for Compound<'_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.item(value)
            }

            fn end(self) -> Result<(), Error> {
                self.finish();
                Ok(())
            }
        })*
    };
}

lists! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
}

impl SerializeMap for Compound<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.next();
        let start = self.json.len();
        write(self.json, key)?;
        match self.json.get(start) {
            Some(b'"') => Ok(()),
            _ => Err(Error::custom("a key is not a text")),
        }
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.json.push(b':');
        write(self.json, value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish();
        Ok(())
    }
}

impl SerializeStruct for Compound<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.next();
        // The name of a field in the source, without characters to escape.
        self.json.push(b'"');
        self.json.extend_from_slice(name.as_bytes());
        self.json.extend_from_slice(b"\":");
        write(self.json, value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
