use proptest::prelude::*;

use super::*;

/// `le`, `pod` and value.
type Samples = Vec<(String, String, f64)>;

fn read(body: &str) -> Result<(Reply, Samples), String> {
    let mut samples = Vec::new();
    let reply = parse(body.as_bytes(), ["le", "pod", "", ""], &mut |sample| {
        let text = |slot: usize| sample.labels[slot].unwrap_or("-").to_owned();
        samples.push((text(0), text(1), sample.value));
    })
    .map_err(|error| error.to_string())?;
    Ok((reply, samples))
}

fn success(body: &str) -> (Answer, Samples) {
    match read(body) {
        Ok((Reply::Success(answer), samples)) => (answer, samples),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_vector_yields_the_labels_that_were_asked_for() {
    let (answer, samples) = success(
        r#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"le":"0.5","pod":"a-1","zone":"x"},"value":[1700000000.123,"12.5"]},
            {"metric":{"le":"+Inf"},"value":[1700000000,"NaN"]},
            {"metric":{"pod":"q\"u\u00e9"},"value":[1700000000,"+Inf"]}]}}"#,
    );
    assert_eq!((answer.kind, answer.series), (ResultKind::Vector, 3));
    assert_eq!(samples[0], ("0.5".into(), "a-1".into(), 12.5));
    assert!(samples[1].2.is_nan());
    assert_eq!(samples[2], ("-".into(), "q\"ué".into(), f64::INFINITY));
}

#[test]
fn a_result_may_come_before_its_type() {
    let (answer, samples) =
        success(r#"{"data":{"result":[{"value":[1,"2"],"metric":{}}],"resultType":"vector"},"status":"success"}"#);
    assert_eq!((answer.kind, samples.len()), (ResultKind::Vector, 1));
}

#[test]
fn scalars_have_a_value_and_other_types_none() {
    let (answer, _) = success(r#"{"status":"success","data":{"resultType":"scalar","result":[1.5,"42"]}}"#);
    assert_eq!((answer.kind, answer.scalar), (ResultKind::Scalar, Some(42.0)));
    for other in [
        r#"{"status":"success","data":{"resultType":"string","result":[1.5,"text"]}}"#,
        r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"]]}]}}"#,
    ] {
        assert_eq!(success(other).0.kind, ResultKind::Other);
    }
}

#[test]
fn an_empty_answer_is_a_vector_without_series() {
    for body in [
        r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":null}}"#,
    ] {
        assert_eq!(success(body).0.series, 0);
    }
}

#[test]
fn only_annotations_leave_an_answer_whole() {
    let with = |extra: &str| {
        success(&format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[]}},{extra}}}"#)).0
    };
    assert!(!with(r#""infos":["PromQL info: metric might not be a counter"]"#).partial);
    assert!(!with(r#""warnings":["PromQL warning: bucket label is missing"]"#).partial);
    assert!(with(r#""warnings":["PromQL warning: x","store 10.0.0.1 is unreachable"]"#).partial);
    assert!(with(r#""isPartial":true"#).partial);
}

#[test]
fn an_error_keeps_its_type() {
    let (reply, _) = read(r#"{"status":"error","errorType":"bad_data","error":"parse error","data":null}"#).unwrap();
    assert_eq!(reply, Reply::Error { kind: "bad_data".into(), message: "parse error".into() });
}

#[test]
fn what_is_no_answer_is_refused() {
    for body in [
        "",
        "<html><body>Sign in</body></html>",
        "null",
        "[]",
        "{}",
        r#"{"status":"success"}"#,
        r#"{"status":"success","data":{}}"#,
        r#"{"status":"perhaps","data":{"resultType":"vector","result":[]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":[1.5,"42"]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{}]}]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,2]}]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2","3"]}]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":[]}} trailing"#,
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2"]},"#,
    ] {
        assert!(read(body).is_err(), "{body}");
    }
}

proptest! {
    #[test]
    fn no_body_makes_the_parser_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&body, ["le", "pod", "", ""], &mut |_| ());
    }

    #[test]
    fn no_cut_or_flipped_answer_makes_the_parser_panic(cut in 0_usize..220, at in 0_usize..220, byte in any::<u8>()) {
        let mut body = br#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"le":"0.5","pod":"a"},"value":[1700000000.123,"12.5"]},{"metric":{},"value":[1,"NaN"]}]},"warnings":["x"]}"#.to_vec();
        if let Some(slot) = body.get_mut(at) {
            *slot = byte;
        }
        body.truncate(cut);
        let _ = parse(&body, ["le", "pod", "", ""], &mut |_| ());
    }
}
