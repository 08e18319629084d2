//! Reads answers of the Prometheus HTTP API: one pass, text borrowed from the body, nothing kept that nobody asked
//! for. Pure; knows HTTP bodies, not HTTP.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// How many labels a reader can ask for.
pub(crate) const LABELS: usize = 4;

/// What one body said, beside its samples.
#[derive(Debug, PartialEq)]
pub(crate) enum Reply {
    /// `status: success`.
    Success(Answer),
    /// `status: error`.
    Error {
        /// `bad_data`, `execution`, `timeout`, …
        kind: String,
        /// For people.
        message: String,
    },
}

/// A successful answer.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answer {
    /// What the expression evaluated to.
    pub kind: ResultKind,
    /// How many series a vector held.
    pub series: usize,
    /// The value of a scalar.
    pub scalar: Option<f64>,
    /// True where the server says that data is missing.
    pub partial: bool,
    /// Warnings, annotations of PromQL among them.
    pub warnings: Vec<String>,
}

/// `resultType`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ResultKind {
    Vector,
    Scalar,
    /// A matrix, a string, or what we do not know.
    #[default]
    Other,
}

/// One series of a vector: the labels that were asked for, in that order, and the value.
pub(crate) struct Sample<'a> {
    pub labels: [Option<&'a str>; LABELS],
    pub value: f64,
}

/// Parses a body and hands each sample of a vector to `sink`. An error says what is wrong with the body; what the
/// sink was given before must then be dropped.
pub(crate) fn parse(
    body: &[u8],
    labels: [&str; LABELS],
    sink: &mut dyn FnMut(Sample<'_>),
) -> Result<Reply, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let envelope = Envelope { labels, sink }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(envelope)
}

/// The whole body.
struct Envelope<'s> {
    labels: [&'s str; LABELS],
    sink: &'s mut dyn FnMut(Sample<'_>),
}

impl<'de> DeserializeSeed<'de> for Envelope<'_> {
    type Value = Reply;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Reply, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Envelope<'_> {
    type Value = Reply;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an answer of the Prometheus HTTP API")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Reply, A::Error> {
        let mut answer = Answer::default();
        let (mut status, mut kind, mut message) = (None, String::new(), String::new());
        let mut found = None;
        while let Some(key) = map.next_key::<Text<'_>>()? {
            match &*key.0 {
                "status" => status = Some(map.next_value::<Text<'_>>()?.0),
                "data" => {
                    let seed = Data { labels: self.labels, sink: &mut *self.sink };
                    found = map.next_value_seed(Nullable(seed))?;
                }
                "warnings" => answer.warnings = map.next_value::<Option<Vec<String>>>()?.unwrap_or_default(),
                "isPartial" => answer.partial = map.next_value::<Option<bool>>()?.unwrap_or_default(),
                "errorType" => kind = map.next_value()?,
                "error" => message = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match status.as_deref() {
            Some("success") => {
                let found = found.ok_or_else(|| A::Error::missing_field("data"))?;
                answer.partial |= answer.warnings.iter().any(|warning| !is_annotation(warning));
                (answer.kind, answer.series, answer.scalar) = found.checked()?;
                Ok(Reply::Success(answer))
            }
            Some("error") => Ok(Reply::Error { kind, message }),
            _ => Err(A::Error::custom("`status` is neither `success` nor `error`")),
        }
    }
}

/// Annotations of PromQL are notes on the query; any other warning (Thanos, Mimir, VictoriaMetrics) means that data
/// is missing.
fn is_annotation(warning: &str) -> bool {
    warning.starts_with("PromQL")
}

/// What `data` held.
#[derive(Default)]
struct Found {
    kind: Option<ResultKind>,
    elements: Elements,
}

#[derive(Default)]
struct Elements {
    samples: usize,
    /// Series without one value: those of a matrix, native histograms.
    other_series: usize,
    numbers: usize,
    text: Option<String>,
}

impl Found {
    /// The declared type must be that of the elements, whatever order they came in.
    fn checked<E: serde::de::Error>(self) -> Result<(ResultKind, usize, Option<f64>), E> {
        let Elements { samples, other_series, numbers, text } = self.elements;
        match self.kind {
            Some(ResultKind::Vector) if other_series == 0 && numbers == 0 && text.is_none() => {
                Ok((ResultKind::Vector, samples, None))
            }
            Some(ResultKind::Scalar) if samples == 0 && other_series == 0 && numbers == 1 => {
                let value = text.as_deref().and_then(number).ok_or_else(|| E::custom("the scalar has no value"))?;
                Ok((ResultKind::Scalar, 0, Some(value)))
            }
            Some(ResultKind::Other) => Ok((ResultKind::Other, 0, None)),
            Some(_) => Err(E::custom("`result` is not of its `resultType`")),
            None => Err(E::missing_field("resultType")),
        }
    }
}

struct Data<'s> {
    labels: [&'s str; LABELS],
    sink: &'s mut dyn FnMut(Sample<'_>),
}

impl<'de> Visitor<'de> for Data<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `resultType` and `result`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let mut found = Found::default();
        while let Some(key) = map.next_key::<Text<'_>>()? {
            match &*key.0 {
                "resultType" => {
                    found.kind = Some(match &*map.next_value::<Text<'_>>()?.0 {
                        "vector" => ResultKind::Vector,
                        "scalar" => ResultKind::Scalar,
                        _ => ResultKind::Other,
                    });
                }
                "result" => {
                    let seed = Result_ { labels: self.labels, sink: &mut *self.sink };
                    found.elements = map.next_value_seed(Nullable(seed))?.unwrap_or_default();
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// The `result` list: series, or the two elements of a scalar.
struct Result_<'s> {
    labels: [&'s str; LABELS],
    sink: &'s mut dyn FnMut(Sample<'_>),
}

impl<'de> Visitor<'de> for Result_<'_> {
    type Value = Elements;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Elements, A::Error> {
        let mut elements = Elements::default();
        let Self { labels, sink } = self;
        while list.next_element_seed(Element { labels: &labels, sink: &mut *sink, elements: &mut elements })?.is_some()
        {
        }
        Ok(elements)
    }
}

struct Element<'s> {
    labels: &'s [&'s str; LABELS],
    sink: &'s mut dyn FnMut(Sample<'_>),
    elements: &'s mut Elements,
}

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Element<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a series, a number or a string")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut labels: [Option<Cow<'de, str>>; LABELS] = [const { None }; LABELS];
        let mut value = None;
        let mut other = false;
        while let Some(key) = map.next_key::<Text<'_>>()? {
            match &*key.0 {
                "metric" => map.next_value_seed(Metric { wanted: self.labels, found: &mut labels })?,
                "value" => value = Some(map.next_value::<Point>()?.0),
                _ => {
                    other = true;
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match value {
            Some(value) => {
                self.elements.samples += 1;
                (self.sink)(Sample { labels: labels.each_ref().map(Option::as_deref), value });
            }
            None if other => self.elements.other_series += 1,
            None => return Err(A::Error::missing_field("value")),
        }
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.elements.text = Some(text.to_owned());
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.elements.numbers += 1;
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        self.elements.numbers += 1;
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.elements.numbers += 1;
        Ok(())
    }
}

/// A label set, of which only the wanted labels are kept.
struct Metric<'s, 'de> {
    wanted: &'s [&'s str; LABELS],
    found: &'s mut [Option<Cow<'de, str>>; LABELS],
}

impl<'de> DeserializeSeed<'de> for Metric<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metric<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a label set")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'_>>()? {
            let slot = self.wanted.iter().position(|wanted| !wanted.is_empty() && *wanted == key.0);
            match slot.and_then(|slot| self.found.get_mut(slot)) {
                Some(found) => *found = Some(map.next_value::<Text<'de>>()?.0),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// `[1700000000.123, "0.5"]`, of which the value is kept: the time is the one that we asked for.
struct Point(f64);

impl<'de> serde::Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (_, Number(value)) = <(f64, Number)>::deserialize(deserializer)?;
        Ok(Self(value))
    }
}

/// A number in a string, as the API writes values: `"0.5"`, `"NaN"`, `"+Inf"`.
struct Number(f64);

impl<'de> serde::Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        number(&text.0).map(Self).ok_or_else(|| D::Error::custom("a sample's value is no number"))
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Text, borrowed from the body unless it holds escapes.
struct Text<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A value that may be `null`, which some servers write for an empty list.
struct Nullable<V>(V);

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Nullable<V> {
    type Value = Option<V::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Nullable<V> {
    type Value = Option<V::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self.0).map(Some)
    }
}

#[cfg(test)]
mod tests;
