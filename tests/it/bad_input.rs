//! "Bad input gets a clear error and loses nothing": which test shows it, item by item. A test that is renamed or goes
//! is missed here.

use std::fs;
use std::path::Path;

/// At the object's field, as the API server and `eval` say it.
const ADMISSION: &str = "bad_objects_are_refused_at_the_path_of_the_field_and_good_ones_are_not";
/// Through the controller, beside good policies that are judged on.
const WORLD: &str = "good_policies_are_judged_beside_a_bad_one_of_every_kind";
const DURATIONS: &str = "what_go_refuses_is_refused_and_so_are_zero_and_negatives";
const BACKEND: &str = "every_failure_of_a_backend_is_its_own_reason";
/// Over real sockets.
const SOCKETS: &str = "statuses_and_bodies_that_are_no_answer_have_their_reasons";
const BAD_ANSWERS: &str = "every_bad_answer_has_its_reason_moves_nothing_and_blinds_nobody_else";
const BAD_FILES: &str = "a_bad_file_is_told_by_name_once_and_the_others_take_effect";
const FILE: &str = "what_is_no_file_of_ours_is_refused_by_name_and_line";

/// Each item, and the tests that show it.
const AUDIT: &[(&str, &[&str])] = &[
    ("unknown fields", &[ADMISSION]),
    ("wrong types", &[ADMISSION, WORLD]),
    ("1h30, 1min, 1.5, -5m, 0s", &[DURATIONS, ADMISSION, WORLD]),
    ("an interval that never rests", &[ADMISSION, WORLD]),
    ("no quantile", &[ADMISSION, WORLD]),
    ("empty actions, an unknown action", &[ADMISSION, WORLD]),
    ("an unknown fallback", &[WORLD]),
    ("a target kind that the config does not list, or the cluster does not have", &[WORLD]),
    (
        "a target that is missing, or goes",
        &[WORLD, "a_target_that_is_deleted_while_active_ends_its_own_obligation_and_the_rest_is_undone"],
    ),
    ("a query that is not PromQL", &["what_is_not_promql_names_the_field", "a_query_cannot_exhaust_the_stack", WORLD]),
    ("answers that are NaN, Inf, empty, several series, of the wrong kind", &[BAD_ANSWERS, BACKEND]),
    ("HTML instead of JSON, cut-off JSON", &["what_is_no_answer_is_refused", BACKEND, BAD_ANSWERS]),
    ("HTTP 400/422/500/503", &[SOCKETS, BACKEND, BAD_ANSWERS]),
    ("a refused connection", &["a_refused_connection_is_the_backends_failure", BAD_ANSWERS]),
    ("a time-out", &["an_answer_that_does_not_come_is_a_time_out", BAD_ANSWERS]),
    ("readings of a wrong type", &["wrong_readings_are_refused_by_field"]),
    ("Rego with a syntax error", &["a_syntax_error_names_file_line_and_column", WORLD]),
    ("a recursion", &["rules_that_depend_on_themselves_are_refused", WORLD]),
    ("a 25-deep literal", &["nested_literals_are_refused_before_they_are_parsed", WORLD]),
    ("an endless comprehension", &["an_endless_rule_is_stopped_and_the_next_one_runs", WORLD]),
    ("an undefined output", &["an_undefined_answer_is_unknown_never_ok", WORLD]),
    ("an output of the wrong shape", &["an_answer_of_the_wrong_shape_is_unknown_and_says_where", WORLD]),
    (
        "a policy file that is empty, 10 MB, not UTF-8",
        &[FILE, "a_file_that_is_no_policy_is_refused_by_name", BAD_FILES],
    ),
    (
        "a policy file of several documents",
        &["several_documents_are_read_in_order_and_refused_where_one_is_meant", BAD_FILES],
    ),
    ("an edit that is not valid", &["an_edit_that_is_not_valid_keeps_the_last_good_text_and_its_effects"]),
];

fn collect(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("sources are readable") {
        let path = entry.expect("entry is readable").path();
        if path.is_dir() {
            collect(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).expect("source is UTF-8"));
        }
    }
}

#[test]
fn every_kind_of_bad_input_has_a_test_that_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = String::new();
    for folder in ["src", "tests/it"] {
        collect(&root.join(folder), &mut sources);
    }
    for (item, tests) in AUDIT {
        for test in *tests {
            assert!(sources.contains(&format!("fn {test}(")), "{item}: there is no test `{test}`");
        }
    }
}
