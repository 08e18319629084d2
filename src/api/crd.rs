//! All custom resources as definitions, for `crd print`, `deploy/crds` and the API servers of tests.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Crd;

use super::{GovernancePolicy, Intervention, LatencyBudgetPolicy, PolicySource, Tenant};

/// Every definition, in the order in which they are printed.
pub fn all() -> Vec<Crd> {
    [LatencyBudgetPolicy::crd(), GovernancePolicy::crd(), Tenant::crd(), PolicySource::crd(), Intervention::crd()]
        .into_iter()
        .map(finish)
        .collect()
}

/// One definition as YAML.
pub fn to_yaml(crd: &Crd) -> String {
    // Through JSON, since that is the form whose field order and omissions Kubernetes defines.
    let value = serde_json::to_value(crd).expect("a definition is plain data");
    serde_saphyr::to_string(&value).expect("plain data has a YAML form")
}

/// What the derive leaves over: it marks every optional field `nullable` (then `p99: null` would count as a quantile;
/// without the mark the server drops nulls), names Rust types in titles, and uses formats that Kubernetes warns of.
fn finish(mut crd: Crd) -> Crd {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            tidy(schema);
        }
    }
    crd
}

fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    // Where a comment in the source wraps is nothing that a reader of `kubectl explain` should see.
    schema.description = schema.description.take().map(|text| text.replace('\n', " "));
    if schema.format.as_deref().is_some_and(|format| !KNOWN_FORMATS.contains(&format)) {
        schema.format = None;
    }
    for child in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        tidy(child);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => tidy(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(tidy),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}

const KNOWN_FORMATS: [&str; 5] = ["date-time", "int32", "int64", "float", "double"];

#[cfg(test)]
mod tests;
