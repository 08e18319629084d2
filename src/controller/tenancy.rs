//! Whose a policy is: by its namespace, never by a label of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;

use crate::controller::watches::Caches;
use crate::model::tenant::Tenant;

/// All tenants, read once from the caches.
#[derive(Debug)]
pub(crate) struct Tenancy {
    tenants: Vec<Arc<Tenant>>,
    built_in: Arc<Tenant>,
}

/// Several Tenants select the namespace; their names, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ambiguous(pub(crate) Vec<String>);

impl Tenancy {
    pub(crate) fn read(caches: &Caches) -> Self {
        let tenants = caches.tenants.all().iter().map(|tenant| Arc::new(tenant.to_model())).collect();
        Self { tenants, built_in: Arc::new(Tenant::built_in()) }
    }

    /// Names of the tenants, without the built-in one.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tenants.iter().map(|tenant| tenant.name.as_str())
    }

    /// The built-in tenant of namespaces that no Tenant selects.
    pub(crate) fn built_in(&self) -> Arc<Tenant> {
        Arc::clone(&self.built_in)
    }

    /// The Tenant of this name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<Tenant>> {
        self.tenants.iter().find(|tenant| tenant.name == name).cloned()
    }

    /// The namespaces that belong to a tenant and to no other.
    pub(crate) fn namespaces_of(&self, caches: &Caches, tenant: &Arc<Tenant>) -> BTreeSet<String> {
        let all = caches.namespaces.all();
        let own = all.iter().filter(|namespace| self.of_labels(namespace.labels()).is_ok_and(|owner| owner == *tenant));
        own.map(|namespace| namespace.name_any()).collect()
    }

    /// The tenant of a namespace.
    pub(crate) fn of(&self, caches: &Caches, namespace: &str) -> Result<Arc<Tenant>, Ambiguous> {
        let labels = caches.namespaces.get("", namespace).map(|object| object.labels().clone()).unwrap_or_default();
        self.of_labels(&labels)
    }

    fn of_labels(&self, labels: &BTreeMap<String, String>) -> Result<Arc<Tenant>, Ambiguous> {
        let mut matching = self.tenants.iter().filter(|tenant| tenant.namespaces.matches(labels));
        match (matching.next(), matching.next()) {
            (None, _) => Ok(self.built_in()),
            (Some(tenant), None) => Ok(Arc::clone(tenant)),
            (Some(first), Some(second)) => {
                let mut names: Vec<_> = [first, second].into_iter().chain(matching).map(|t| t.name.clone()).collect();
                names.sort();
                Err(Ambiguous(names))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::tenant::NamespaceSelector;

    use super::*;

    fn tenant(name: &str, label: (&str, &str)) -> Arc<Tenant> {
        let match_labels = BTreeMap::from([(label.0.to_owned(), label.1.to_owned())]);
        let namespaces = NamespaceSelector { match_labels, present: true };
        Arc::new(Tenant { name: name.into(), namespaces, ..Tenant::built_in() })
    }

    #[test]
    fn a_namespace_has_one_tenant_or_an_answer_why_not() {
        let tenancy = Tenancy {
            tenants: vec![tenant("core", ("team", "core")), tenant("b", ("x", "y")), tenant("a", ("team", "lab"))],
            built_in: Arc::new(Tenant::built_in()),
        };
        let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        assert_eq!(tenancy.of_labels(&labels(&[("team", "core")])).unwrap().name, "core");
        assert_eq!(tenancy.of_labels(&labels(&[])).unwrap().name, "default");
        let both = tenancy.of_labels(&labels(&[("team", "lab"), ("x", "y")])).unwrap_err();
        assert_eq!(both, Ambiguous(vec!["a".into(), "b".into()]));
    }
}
