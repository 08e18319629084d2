//! Label selectors in their text form, as a scale subresource gives them (`app=web,tier in (a, b),!canary`).

use std::collections::BTreeSet;

use kube::core::{Expression, Selector};

/// None if the text is no selector.
pub(crate) fn parse(text: &str) -> Option<Selector> {
    terms(text).into_iter().map(|term| expression(term.trim())).collect::<Option<Vec<_>>>().map(Selector::from_iter)
}

/// Splits at commas outside parentheses.
fn terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut depth) = (0, 0_u32);
    for (index, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms.retain(|term| !term.trim().is_empty());
    terms
}

fn expression(term: &str) -> Option<Expression> {
    if let Some(key) = term.strip_prefix('!') {
        return Some(Expression::DoesNotExist(key.trim().to_owned()));
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Some(Expression::NotEqual(key.trim().to_owned(), value.trim().to_owned()));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Some(Expression::Equal(key.trim().to_owned(), value.trim().to_owned()));
    }
    let Some((head, values)) = term.strip_suffix(')').and_then(|term| term.split_once('(')) else {
        return (!term.contains(' ')).then(|| Expression::Exists(term.to_owned()));
    };
    let values: BTreeSet<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
    match head.split_whitespace().collect::<Vec<_>>().as_slice() {
        [key, "in"] => Some(Expression::In((*key).to_owned(), values)),
        [key, "notin"] => Some(Expression::NotIn((*key).to_owned(), values)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::core::SelectorExt;

    use super::*;

    #[test]
    fn every_form_is_read() {
        let selector = parse("app=web,tier in (a, b),zone notin (x),ready,!canary,v!=2").unwrap();
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert!(selector.matches(&labels(&[("app", "web"), ("tier", "b"), ("ready", ""), ("v", "1")])));
        assert!(!selector.matches(&labels(&[("app", "web"), ("tier", "c"), ("ready", ""), ("v", "1")])));
        assert!(!selector.matches(&labels(&[("app", "web"), ("tier", "a"), ("ready", ""), ("canary", "")])));
    }

    #[test]
    fn what_is_no_selector_is_none() {
        assert!(parse("app is web").is_none());
        assert!(parse("app among (a)").is_none());
    }
}
