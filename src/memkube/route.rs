//! What a request asks for: its path, query and Accept header, taken apart.
//!
//! Refuses to know which kinds exist and what is stored.

use std::collections::BTreeMap;

use crate::memkube::status::{Cause, Failure, FieldError};

/// The addressed thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Version,
    Health,
    CoreVersions,
    Groups,
    Group(String),
    Resources { group: String, version: String },
    Objects(Target),
    Unknown,
}

/// A collection or one object of a kind, or a subresource of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Route {
    pub(crate) fn parse(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            ["version"] => Self::Version,
            ["readyz" | "livez" | "healthz", ..] => Self::Health,
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group((*group).to_owned()),
            ["api", version] => Self::Resources { group: String::new(), version: (*version).to_owned() },
            ["apis", group, version] => Self::Resources { group: (*group).to_owned(), version: (*version).to_owned() },
            ["api", version, rest @ ..] => Self::objects("", version, rest),
            ["apis", group, version, rest @ ..] => Self::objects(group, version, rest),
            _ => Self::Unknown,
        }
    }

    fn objects(group: &str, version: &str, rest: &[&str]) -> Self {
        // `/namespaces/x` and `/namespaces/x/status` address the Namespace itself.
        let (namespace, rest) = match rest {
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (*namespace, inner),
            other => ("", other),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some(name), None),
            [plural, name, subresource] => (plural, Some(name), Some(subresource)),
            _ => return Self::Unknown,
        };
        Self::Objects(Target {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: (*plural).to_owned(),
            namespace: namespace.to_owned(),
            name: name.map(|name| (*name).to_owned()),
            subresource: subresource.map(|name| (*name).to_owned()),
        })
    }
}

/// The query parameters; empty pairs (`?&limit=1`) are legal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.into_owned().collect())
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// The same query with one more parameter.
    pub(crate) fn with(&self, key: &str, value: &str) -> Self {
        let mut query = self.clone();
        query.0.insert(key.to_owned(), value.to_owned());
        query
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.text(key), "true" | "1")
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>, Failure> {
        let text = self.text(key);
        if text.is_empty() {
            return Ok(None);
        }
        let parsed = text.parse().map(Some);
        parsed.map_err(|_| Failure::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax")))
    }

    /// Whether this is a trial run; any other value than `All` is refused.
    pub(crate) fn dry_run(&self, options_kind: &str) -> Result<bool, Failure> {
        match self.text("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => {
                let detail = "supported values: \"All\"";
                let error = FieldError::new("dryRun", Cause::NotSupported, Some(serde_json::json!([other])), detail);
                Err(Failure::invalid("meta.k8s.io", options_kind, "", &[error]))
            }
        }
    }
}

/// What of an object goes into the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Full,
    Metadata,
}

impl Form {
    /// The first acceptable form of an Accept header; tables and protobuf are not offered.
    pub(crate) fn accepted(header: &str) -> Result<Self, Failure> {
        if header.trim().is_empty() {
            return Ok(Self::Full);
        }
        header.split(',').find_map(Self::of).ok_or_else(|| {
            let message = "only the following media types are accepted: application/json";
            Failure::new(406, "NotAcceptable", message)
        })
    }

    fn of(media: &str) -> Option<Self> {
        let mut parts = media.split(';').map(str::trim);
        let json = matches!(parts.next(), Some("application/json" | "application/*" | "*/*"));
        let shown_as = parts.find_map(|part| part.strip_prefix("as="));
        match (json, shown_as) {
            (true, None) => Some(Self::Full),
            (true, Some("PartialObjectMetadata" | "PartialObjectMetadataList")) => Some(Self::Metadata),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> (String, String, Option<String>, Option<String>) {
        match Route::parse(path) {
            Route::Objects(target) => (target.plural, target.namespace, target.name, target.subresource),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn paths_come_apart_into_kind_namespace_name_and_subresource() {
        let some = |text: &str| Some(text.to_owned());
        for (path, plural, namespace, name, subresource) in [
            ("/api/v1/pods", "pods", "", None, None),
            ("/api/v1/namespaces", "namespaces", "", None, None),
            ("/api/v1/namespaces/a", "namespaces", "", some("a"), None),
            ("/api/v1/namespaces/a/status", "namespaces", "", some("a"), some("status")),
            ("/api/v1/namespaces/a/pods", "pods", "a", None, None),
            ("/apis/g/v1/namespaces/a/things/b/scale", "things", "a", some("b"), some("scale")),
            ("/apis/g/v1/things/b", "things", "", some("b"), None),
        ] {
            let wanted = (plural.to_owned(), namespace.to_owned(), name, subresource);
            assert_eq!(target(path), wanted, "{path}");
        }
    }

    #[test]
    fn leading_empty_pairs_in_a_query_are_skipped() {
        let query = Query::parse(Some("&limit=5&watch=true&fieldSelector=metadata.name%3Dx"));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert!(query.flag("watch"));
        assert_eq!(query.text("fieldSelector"), "metadata.name=x");
    }

    #[test]
    fn the_first_offered_media_type_wins() {
        assert_eq!(
            Form::accepted("application/json;as=Table;v=v1;g=meta.k8s.io,application/json").unwrap(),
            Form::Full
        );
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(Form::accepted(metadata).unwrap(), Form::Metadata);
        assert_eq!(Form::accepted("application/vnd.kubernetes.protobuf").unwrap_err().code, 406);
    }
}
