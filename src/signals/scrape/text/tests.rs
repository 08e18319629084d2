use proptest::prelude::*;

use super::*;

fn read(body: &str, format: Format) -> Result<Vec<String>, Error> {
    let mut lines = Vec::new();
    parse(body, format, |sample| {
        let labels: Vec<_> = sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let at = sample.timestamp.map_or(String::new(), |at| format!(" @{at}"));
        lines.push(format!("{} [{}] {}{at}", sample.name, labels.join("|"), sample.value));
    })?;
    Ok(lines)
}

fn text(body: &str) -> Result<Vec<String>, Error> {
    read(body, Format::Text)
}

#[test]
fn text_is_read_with_everything_that_other_parsers_lose() {
    let body = "# HELP http_requests_total Requests, \\ \"quoted\".\n# TYPE http_requests_total counter\n\
        http_requests_total 1027\n\
        http_requests_total{path=\"/v1/{id}\"} 1\n\
        a{x=\"1,2\",y=\"=\"} 3 1395066363000\n\
        \n\
        # just a comment\n\
        b { le = \"+Inf\" , } +Inf\n\
        c{t=\"a\\\\b\\\"c\\nd é\"}\t-1.5e3\r\n\
        d NaN\n\
        {\"http.server.duration\",\"k8s.pod\"=\"p\"} 4\n";
    assert_eq!(
        text(body).unwrap(),
        [
            "http_requests_total [] 1027",
            "http_requests_total [path=/v1/{id}] 1",
            "a [x=1,2|y==] 3 @1395066363",
            "b [le=+Inf] inf",
            "c [t=a\\b\"c\nd é] -1500",
            "d [] NaN",
            "http.server.duration [k8s.pod=p] 4",
        ]
    );
    assert_eq!(text("").unwrap(), Vec::<String>::new());
}

#[test]
fn open_metrics_is_read_with_exemplars_and_seconds() {
    let body = "# TYPE a histogram\n# UNIT a seconds\n\
        a_bucket{le=\"1.0\"} 3 1700000000.25 # {trace_id=\"x\"} 0.67 1700000000.1\n\
        a_bucket{le=\"+Inf\"} 3 # {} 1\n\
        # EOF\n";
    assert_eq!(
        read(body, Format::OpenMetrics).unwrap(),
        ["a_bucket [le=1.0] 3 @1700000000.25", "a_bucket [le=+Inf] 3"]
    );
    assert!(read("a 1\n# EOF", Format::OpenMetrics).is_ok());
    for body in ["a 1\n", "", "a 1\n# EOF\na 2\n", "a 1\n\n# EOF\n", "a 1 # x\n# EOF\n", "a 1 # {a=\"b\"}\n# EOF\n"] {
        assert!(read(body, Format::OpenMetrics).is_err(), "{body:?}");
    }
}

#[test]
fn a_body_that_does_not_parse_whole_is_refused_with_its_line() {
    for (body, line) in [
        ("<!DOCTYPE html>\n<html></html>\n", 1),
        ("a 1\na\n", 2),
        ("a 1\na 12", 2),
        ("a x\n", 1),
        ("a 1 x\n", 1),
        ("a 1 1.5\n", 1),
        ("a 1 2 3\n", 1),
        ("1a 1\n", 1),
        ("a{b} 1\n", 1),
        ("a{b=1} 1\n", 1),
        ("a{b=\"1\" 1\n", 1),
        ("a{b=\"1} 1\n", 1),
        ("a{b=\"\\t\"} 1\n", 1),
        ("a{b=\"1\",b=\"2\"} 1\n", 1),
        ("a{b=\"1\"c=\"2\"} 1\n", 1),
        ("{b=\"1\"} 1\n", 1),
        ("a{\"b\"} 1\n", 1),
        ("a 1 # {t=\"x\"} 1\n", 1),
        ("# TYPE a thing\n", 1),
        ("ä 1\n", 1),
        ("{\"status\":\"success\"}\n", 1),
    ] {
        assert_eq!(text(body).map_err(|error| error.line), Err(line), "{body:?}");
    }
}

#[test]
fn the_content_type_decides_the_format() {
    for (declared, format) in [
        (None, Some(Format::Text)),
        (Some("text/plain; version=0.0.4; charset=utf-8"), Some(Format::Text)),
        (Some("application/openmetrics-text; version=1.0.0"), Some(Format::OpenMetrics)),
        (Some("text/html"), None),
        (Some("application/json"), None),
        (Some(""), None),
    ] {
        assert_eq!(Format::of(declared), format, "{declared:?}");
    }
}

proptest! {
    #[test]
    fn no_body_makes_the_parser_panic(body in ".{0,200}") {
        let _ = read(&body, Format::Text);
        let _ = read(&body, Format::OpenMetrics);
    }

    #[test]
    fn no_almost_right_body_makes_the_parser_panic(body in "[a{}=\", \\\\n1.#\n\tEOFé]{0,60}") {
        let _ = read(&body, Format::Text);
        let _ = read(&body, Format::OpenMetrics);
    }

    #[test]
    fn what_is_written_reads_back(value in any::<f64>().prop_filter("a number", |v| !v.is_nan()), label in "[^\r]{0,20}") {
        let escaped = label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let body = format!("a{{b=\"{escaped}\"}} {value}\n");
        prop_assert_eq!(text(&body).unwrap(), [format!("a [b={label}] {value}")]);
    }
}
