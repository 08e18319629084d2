use std::fs;
use std::path::Path;

use super::*;

/// `UPDATE_GOLDEN=1 cargo test` writes the files anew.
#[test]
fn the_definitions_in_deploy_are_those_of_the_code() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/crds");
    for crd in all() {
        let path = directory.join(format!("{}.yaml", crd.spec.names.plural));
        let yaml = to_yaml(&crd);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(&directory).unwrap();
            fs::write(&path, &yaml).unwrap();
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == yaml, "{} is not current: run `UPDATE_GOLDEN=1 cargo test`", path.display());
    }
}

#[test]
fn yaml_reads_back_as_the_same_definition() {
    for crd in all() {
        let read: serde_json::Value = serde_saphyr::from_str(&to_yaml(&crd)).unwrap();
        assert_eq!(serde_json::from_value::<Crd>(read).unwrap(), crd);
    }
}

/// Every schema with its path.
fn schemas() -> Vec<(String, JSONSchemaProps)> {
    fn walk(path: &str, schema: &JSONSchemaProps, found: &mut Vec<(String, JSONSchemaProps)>) {
        found.push((path.to_owned(), schema.clone()));
        for (name, child) in schema.properties.iter().flatten() {
            walk(&format!("{path}.{name}"), child, found);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
            walk(&format!("{path}[]"), items, found);
        }
    }
    let mut found = Vec::new();
    for crd in all() {
        for version in crd.spec.versions {
            let schema = version.schema.and_then(|schema| schema.open_api_v3_schema).unwrap();
            walk(&crd.spec.names.kind, &schema, &mut found);
        }
    }
    found
}

#[test]
fn every_field_is_described() {
    let bare: Vec<_> = schemas()
        .into_iter()
        .filter(|(path, schema)| !path.ends_with("[]") && schema.description.as_deref().unwrap_or_default().is_empty())
        .map(|(path, _)| path)
        .collect();
    assert!(bare.is_empty(), "no description: {bare:#?}");
}

/// Without bounds the API server cannot bound the cost of a rule and refuses the definition.
#[test]
fn every_text_and_list_of_a_users_spec_is_bounded() {
    let unbounded: Vec<_> = schemas()
        .into_iter()
        .filter(|(path, _)| path.contains(".spec") && !path.starts_with("Intervention"))
        .filter(|(_, schema)| match schema.type_.as_deref() {
            Some("string") => schema.max_length.is_none() && schema.enum_.is_none(),
            Some("array") => schema.max_items.is_none(),
            _ => false,
        })
        .map(|(path, _)| path)
        .collect();
    assert!(unbounded.is_empty(), "no bound: {unbounded:#?}");
}

/// The walker of `admission` knows what our definitions use; whoever uses more teaches it first.
#[test]
fn schemas_use_only_what_the_checks_outside_a_server_know() {
    for (path, schema) in schemas() {
        let foreign = schema.all_of.is_some()
            || schema.any_of.is_some()
            || schema.one_of.is_some()
            || schema.not.is_some()
            || schema.multiple_of.is_some()
            || schema.exclusive_minimum.is_some()
            || schema.exclusive_maximum.is_some()
            || schema.nullable.is_some()
            || schema.unique_items.is_some()
            || schema.x_kubernetes_int_or_string.is_some()
            || matches!(schema.x_kubernetes_list_type.as_deref(), Some("set"));
        assert!(!foreign, "{path}");
    }
}
