//! A strict parser of metric exposition: Prometheus text 0.0.4 and the subset of OpenMetrics that counters and
//! histograms need. A body that does not parse whole is no scrape: there is no partial result. Pure.

use std::borrow::Cow;

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `text/plain; version=0.0.4`.
    Text,
    /// `application/openmetrics-text`.
    OpenMetrics,
}

impl Format {
    /// The format that a `Content-Type` declares; a missing one is taken as text. None: not metrics.
    pub(crate) fn of(content_type: Option<&str>) -> Option<Self> {
        let Some(declared) = content_type else { return Some(Self::Text) };
        match declared.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "application/openmetrics-text" => Some(Self::OpenMetrics),
            "text/plain" => Some(Self::Text),
            _ => None,
        }
    }
}

/// Name and value of each label.
type Labels<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// One sample line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample<'a> {
    pub name: Cow<'a, str>,
    pub labels: Labels<'a>,
    pub value: f64,
    /// Seconds since the epoch, if the line says.
    pub timestamp: Option<f64>,
}

/// Where a body stops making sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub(crate) struct Error {
    pub line: usize,
    pub what: &'static str,
}

/// Parses a whole body.
pub(crate) fn parse<'a>(body: &'a str, format: Format, mut sink: impl FnMut(Sample<'a>)) -> Result<(), Error> {
    let mut ended = false;
    let mut rest = body;
    let mut line = 0;
    while !rest.is_empty() {
        line += 1;
        let fail = |what| Error { line, what };
        let (text, after, whole) = match rest.split_once('\n') {
            Some((text, after)) => (text, after, true),
            None => (rest, "", false),
        };
        rest = after;
        if ended {
            return Err(fail("text after `# EOF`"));
        }
        if format == Format::OpenMetrics && text == "# EOF" {
            ended = true;
            continue;
        }
        // A line without its end may have lost digits.
        if !whole {
            return Err(fail("the last line has no end: the body is cut off"));
        }
        let text = text.strip_suffix('\r').filter(|_| format == Format::Text).unwrap_or(text);
        match text.trim_start_matches([' ', '\t']) {
            "" if format == Format::Text => {}
            "" => return Err(fail("an empty line")),
            comment if comment.starts_with('#') => check_comment(comment).map_err(fail)?,
            text => sink(Cursor { rest: text, format }.sample().map_err(fail)?),
        }
    }
    if format == Format::OpenMetrics && !ended {
        return Err(Error { line, what: "no `# EOF`: the body is cut off" });
    }
    Ok(())
}

/// What `# TYPE` may declare.
const KINDS: [&str; 9] =
    ["counter", "gauge", "histogram", "summary", "untyped", "unknown", "info", "stateset", "gaugehistogram"];

fn check_comment(comment: &str) -> Result<(), &'static str> {
    let mut words = comment.trim_start_matches('#').split([' ', '\t']).filter(|word| !word.is_empty());
    if words.next() != Some("TYPE") {
        return Ok(());
    }
    let kind = words.next_back().unwrap_or_default();
    if KINDS.contains(&kind) { Ok(()) } else { Err("an unknown metric type") }
}

/// What is left of a sample line.
struct Cursor<'a> {
    rest: &'a str,
    format: Format,
}

impl<'a> Cursor<'a> {
    fn sample(mut self) -> Result<Sample<'a>, &'static str> {
        let mut name = None;
        if !self.rest.starts_with('{') {
            name = Some(Cow::Borrowed(self.identifier(":")?));
            self.blanks();
        }
        let labels = if self.eat('{') { self.labels(&mut name)? } else { Vec::new() };
        let name = name.ok_or("a sample without a name")?;
        if !labels.is_empty() || !self.rest.starts_with([' ', '\t']) {
            self.blanks();
        }
        let value = number(self.word().ok_or("a sample without a value")?).ok_or("a value that is no number")?;
        let mut timestamp = None;
        if !self.rest.is_empty() && !self.rest.starts_with('#') {
            let text = self.word().unwrap_or_default();
            timestamp = Some(self.timestamp(text).ok_or("a timestamp that is no number")?);
        }
        if self.format == Format::OpenMetrics && self.eat('#') {
            self.exemplar()?;
        }
        if self.rest.is_empty() { Ok(Sample { name, labels, value, timestamp }) } else { Err("text after the sample") }
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn eat(&mut self, expected: char) -> bool {
        let after = self.rest.strip_prefix(expected);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// Text up to the next blank, and the blanks after it.
    fn word(&mut self) -> Option<&'a str> {
        self.blanks();
        let end = self.rest.find([' ', '\t']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.blanks();
        (!word.is_empty()).then_some(word)
    }

    fn identifier(&mut self, further: &str) -> Result<&'a str, &'static str> {
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || further.contains(c);
        let end = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err("a name that is none");
        }
        self.rest = rest;
        Ok(name)
    }

    /// The labels after `{`; a quoted name of the metric itself may be among them.
    fn labels(&mut self, name: &mut Option<Cow<'a, str>>) -> Result<Labels<'a>, &'static str> {
        let mut labels = Labels::new();
        loop {
            self.blanks();
            if self.eat('}') {
                return Ok(labels);
            }
            let quoted = self.rest.starts_with('"');
            let label = if quoted { self.quoted()? } else { Cow::Borrowed(self.identifier("")?) };
            self.blanks();
            if self.eat('=') {
                self.blanks();
                let value = self.quoted()?;
                if labels.iter().any(|(known, _)| *known == label) {
                    return Err("a label that stands twice");
                }
                labels.push((label, value));
            } else if quoted && name.is_none() && labels.is_empty() {
                *name = Some(label);
            } else {
                return Err("a label without `=`");
            }
            self.blanks();
            if !self.eat(',') && !self.rest.starts_with('}') {
                return Err("labels that do not end");
            }
        }
    }

    /// A string in double quotes, with the escapes `\\`, `\"` and `\n`.
    fn quoted(&mut self) -> Result<Cow<'a, str>, &'static str> {
        if !self.eat('"') {
            return Err("a value without quotes");
        }
        let mut owned = String::new();
        loop {
            let end = self.rest.find(['"', '\\']).ok_or("a string that does not end")?;
            let (text, rest) = self.rest.split_at(end);
            let mut after = rest.chars();
            if after.next() == Some('"') {
                self.rest = after.as_str();
                return Ok(if owned.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(owned + text) });
            }
            owned.push_str(text);
            owned.push(match after.next() {
                Some('\\') => '\\',
                Some('"') => '"',
                Some('n') => '\n',
                _ => return Err("an unknown escape"),
            });
            self.rest = after.as_str();
        }
    }

    /// Milliseconds in text, seconds in OpenMetrics.
    fn timestamp(&self, text: &str) -> Option<f64> {
        match self.format {
            Format::Text => text.parse::<i64>().ok().map(|millis| millis as f64 / 1e3),
            Format::OpenMetrics => number(text).filter(|seconds| seconds.is_finite()),
        }
    }

    /// The tail ` # {labels} value [timestamp]`, which is checked and dropped.
    fn exemplar(&mut self) -> Result<(), &'static str> {
        self.blanks();
        if !self.eat('{') {
            return Err("an exemplar without labels");
        }
        // A name among an exemplar's labels would be one of a metric.
        self.labels(&mut Some(Cow::Borrowed("")))?;
        let value = self.word().and_then(number).ok_or("an exemplar without a value")?;
        if value.is_nan() {
            return Err("an exemplar that is no number");
        }
        match self.word() {
            Some(text) if number(text).is_none() => Err("an exemplar's timestamp that is no number"),
            _ => Ok(()),
        }
    }
}

/// A number as Go writes it; `inf` and `nan` in any case.
fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests;
