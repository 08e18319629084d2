//! Reading JSON. The grammar is RFC 8259's, with the liberties that Go's decoder takes: an unpaired surrogate becomes
//! U+FFFD. Depth and number of values are bounded.

use std::borrow::Cow;

use super::{DEEPEST, Fault, Fields, Json};

/// The one value of a document with at most `most` values, keys included.
pub(in crate::bundle) fn parse(bytes: &[u8], most: usize) -> Result<Json<'_>, Fault> {
    let text = str::from_utf8(bytes).map_err(|error| Fault {
        at: place(bytes, error.valid_up_to()),
        message: "is not UTF-8; expected JSON in UTF-8".into(),
    })?;
    let mut reader = Reader { text, at: 0, left: most };
    let value = reader.value(0).and_then(|value| {
        reader.blanks();
        if reader.peek().is_some() {
            reader.fault("something follows the value; expected one JSON value")
        } else {
            Ok(value)
        }
    });
    value.map_err(|Stop { at, message }| Fault { at: place(bytes, at), message })
}

/// Line and column of a byte, from 1.
fn place(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let before = bytes.get(..at)?;
    let line = before.split(|byte| *byte == b'\n').count();
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    Some((line, at - start + 1))
}

struct Stop {
    at: usize,
    message: String,
}

type Read<T> = Result<T, Stop>;

struct Reader<'a> {
    text: &'a str,
    at: usize,
    left: usize,
}

impl<'a> Reader<'a> {
    fn fault<T>(&self, message: impl Into<String>) -> Read<T> {
        Err(Stop { at: self.at, message: message.into() })
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &str, value: Json<'a>) -> Read<Json<'a>> {
        if self.text.as_bytes().get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes())) {
            self.at += word.len();
            return Ok(value);
        }
        self.fault("is no JSON value")
    }

    fn count(&mut self) -> Read<()> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.fault("holds too many values for one bundle"),
        }
    }

    fn value(&mut self, depth: usize) -> Read<Json<'a>> {
        self.count()?;
        self.blanks();
        if depth >= DEEPEST {
            return self.fault(format!("is nested too deep; expected at most {DEEPEST} levels"));
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(_) => self.fault("is no JSON value"),
            None => self.fault("ends early; expected a JSON value"),
        }
    }

    fn list(&mut self, depth: usize) -> Read<Json<'a>> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.take(b']') {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.take(b']') {
                return Ok(Json::List(items));
            }
            if !self.take(b',') {
                return self.fault("expected `,` or `]`");
            }
        }
    }

    fn object(&mut self, depth: usize) -> Read<Json<'a>> {
        self.at += 1;
        let mut fields = Vec::new();
        self.blanks();
        if self.take(b'}') {
            return Ok(Json::Object(Fields::default()));
        }
        loop {
            self.count()?;
            self.blanks();
            if self.peek() != Some(b'"') {
                return self.fault("expected a key in quotes");
            }
            let key = self.string()?;
            self.blanks();
            if !self.take(b':') {
                return self.fault("expected `:`");
            }
            fields.push((key, self.value(depth + 1)?));
            self.blanks();
            if self.take(b'}') {
                return Ok(Json::Object(Fields::of(fields)));
            }
            if !self.take(b',') {
                return self.fault("expected `,` or `}`");
            }
        }
    }

    fn digits(&mut self) -> Read<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { self.fault("expected a digit") } else { Ok(()) }
    }

    fn number(&mut self) -> Read<Json<'a>> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        Ok(Json::Number(Cow::Borrowed(self.text.get(start..self.at).unwrap_or_default())))
    }

    /// At an opening quote.
    fn string(&mut self) -> Read<Cow<'a, str>> {
        self.at += 1;
        let mut built: Option<String> = None;
        let mut plain = self.at;
        loop {
            match self.peek() {
                None => return self.fault("ends within a text"),
                Some(b'"') => {
                    let rest = self.text.get(plain..self.at).unwrap_or_default();
                    self.at += 1;
                    return Ok(match built {
                        Some(text) => Cow::Owned(text + rest),
                        None => Cow::Borrowed(rest),
                    });
                }
                Some(b'\\') => {
                    let text = built.get_or_insert_default();
                    text.push_str(self.text.get(plain..self.at).unwrap_or_default());
                    self.at += 1;
                    let c = self.escape()?;
                    if let Some(text) = &mut built {
                        text.push(c);
                    }
                    plain = self.at;
                }
                Some(0..=0x1f) => return self.fault("holds a control character; expected it escaped"),
                Some(_) => self.at += 1,
            }
        }
    }

    /// After a backslash.
    fn escape(&mut self) -> Read<char> {
        let c = match self.peek() {
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return self.fault("is no escape"),
        };
        self.at += 1;
        Ok(c)
    }

    fn unicode(&mut self) -> Read<char> {
        let first = self.hex()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let before = self.at;
        if self.take(b'\\') && self.take(b'u') {
            let second = self.hex()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        // What follows stands for itself.
        self.at = before;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex(&mut self) -> Read<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let code = digits.and_then(|digits| {
            digits.iter().try_fold(0_u32, |code, digit| Some((code << 4) | char::from(*digit).to_digit(16)?))
        });
        match code {
            Some(code) => {
                self.at += 4;
                Ok(code)
            }
            None => self.fault("expected four hex digits"),
        }
    }
}
