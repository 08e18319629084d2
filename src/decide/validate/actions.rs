//! The actions of a policy: which fields belong to which, their ranges, and what the configuration must list.

use crate::model::policy::{Action, ActionKind, DraftAction, IsolationLimits, RouteRef};
use crate::model::problem::Problem;
use crate::model::quantity::Percent;
use crate::model::reason::Reason;
use crate::model::tenant::{Class, Tenant};
use crate::model::time;

use super::{CACHE_ONLY, Findings, NORMAL, Surroundings, one_of};

/// Checks a list of actions at the path `at`; those without a problem come back.
pub(super) fn check(
    at: &str,
    drafts: &[DraftAction],
    surroundings: &Surroundings,
    tenant: &Tenant,
    findings: &mut Findings,
) -> Vec<Action> {
    let mut checked = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let Some(kind) = ActionKind::parse(&draft.kind) else {
            let found = format!("`{}` is no action", draft.kind);
            let kinds = one_of(ActionKind::ALL.iter().map(|kind| kind.as_str()));
            findings.add(Problem::expected(format!("{at}.type"), found, format!("one of {kinds}")));
            continue;
        };
        check_allowed(&at, kind, tenant, findings);
        let mut config = Config { at: format!("{at}.config"), kind, draft, surroundings, findings };
        config.refuse_foreign_fields();
        checked.extend(config.action());
    }
    checked
}

/// Reads the actions that a rule wrote: `[{"type": "mode", "config": {"mode": "cache-only"}}]`.
pub(super) fn drafts_of(at: &str, written: &serde_json::Value, findings: &mut Findings) -> Vec<DraftAction> {
    let Some(items) = written.as_array() else {
        findings.add(Problem::expected(at, "is no list", "a list of actions"));
        return Vec::new();
    };
    let mut drafts = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match serde_json::from_value::<written::Action>(item.clone()) {
            Ok(action) => drafts.push(action.into()),
            Err(error) => findings.add(Problem::expected(format!("{at}[{index}]"), error, "`type` and `config`")),
        }
    }
    drafts
}

/// The shape in which a rule writes actions; the same as in a policy's spec.
mod written {
    use serde::Deserialize;

    use crate::model::policy::DraftAction;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Action {
        #[serde(rename = "type")]
        kind: String,
        #[serde(default)]
        config: Config,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
    struct Config {
        timeout: Option<String>,
        fallback: Option<String>,
        mode: Option<String>,
        max_isolated_percent: Option<i64>,
        min_healthy: Option<i64>,
        virtual_service: Option<String>,
        route: Option<String>,
        destination: Option<String>,
        weight: Option<i64>,
        sink: Option<String>,
        half_open: Option<HalfOpen>,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
    struct HalfOpen {
        initial_weight_percent: Option<i64>,
    }

    impl From<Action> for DraftAction {
        fn from(action: Action) -> Self {
            let config = action.config;
            Self {
                kind: action.kind,
                timeout: config.timeout,
                fallback: config.fallback,
                mode: config.mode,
                max_isolated_percent: config.max_isolated_percent,
                min_healthy: config.min_healthy,
                virtual_service: config.virtual_service,
                route: config.route,
                destination: config.destination,
                weight: config.weight,
                sink: config.sink,
                probe_percent: config.half_open.and_then(|half_open| half_open.initial_weight_percent),
            }
        }
    }
}

/// Compliance never acts, whatever its Tenant allows; its policies may notify.
fn check_allowed(at: &str, kind: ActionKind, tenant: &Tenant, findings: &mut Findings) {
    let by_class = tenant.class != Class::Compliance || kind == ActionKind::Notify;
    let by_tenant = tenant.allowed_actions.as_ref().is_none_or(|allowed| allowed.contains(&kind));
    if by_class && by_tenant {
        return;
    }
    let allowed = ActionKind::ALL.into_iter().filter(|kind| {
        (tenant.class != Class::Compliance || *kind == ActionKind::Notify)
            && tenant.allowed_actions.as_ref().is_none_or(|allowed| allowed.contains(kind))
    });
    let allowed: Vec<&str> = allowed.map(ActionKind::as_str).collect();
    let expected = if allowed.is_empty() { "no action".to_owned() } else { allowed.join(", ") };
    let found = format!("the tenant `{}` may not ask for `{kind}`", tenant.name);
    findings.add_as(Reason::ActionNotAllowed, Problem::expected(format!("{at}.type"), found, expected));
}

struct Config<'a> {
    at: String,
    kind: ActionKind,
    draft: &'a DraftAction,
    surroundings: &'a Surroundings,
    findings: &'a mut Findings,
}

impl Config<'_> {
    fn path(&self, field: &str) -> String {
        format!("{}.{field}", self.at)
    }

    /// A field that the action does not have would be dropped without a word.
    fn refuse_foreign_fields(&mut self) {
        use ActionKind::{CircuitBreaker, IsolatePods, Mode, Notify, RouteWeight};
        let draft = self.draft;
        let fields: [(&str, bool, &[ActionKind]); 11] = [
            ("timeout", draft.timeout.is_some(), &[CircuitBreaker]),
            ("fallback", draft.fallback.is_some(), &[CircuitBreaker]),
            ("mode", draft.mode.is_some(), &[Mode]),
            ("maxIsolatedPercent", draft.max_isolated_percent.is_some(), &[CircuitBreaker, IsolatePods]),
            ("minHealthy", draft.min_healthy.is_some(), &[CircuitBreaker, IsolatePods]),
            ("virtualService", draft.virtual_service.is_some(), &[CircuitBreaker, RouteWeight]),
            ("route", draft.route.is_some(), &[CircuitBreaker, RouteWeight]),
            ("destination", draft.destination.is_some(), &[RouteWeight]),
            ("weight", draft.weight.is_some(), &[RouteWeight]),
            ("sink", draft.sink.is_some(), &[Notify]),
            ("halfOpen", draft.probe_percent.is_some(), &[CircuitBreaker]),
        ];
        for (field, _, _) in fields.iter().filter(|(_, written, kinds)| *written && !kinds.contains(&self.kind)) {
            let known: Vec<&str> =
                fields.iter().filter(|(_, _, kinds)| kinds.contains(&self.kind)).map(|(field, _, _)| *field).collect();
            let found = format!("is not a field of {}", self.kind);
            self.findings.add(Problem::expected(self.path(field), found, known.join(", ")));
        }
    }

    fn action(&mut self) -> Option<Action> {
        let draft = self.draft;
        match self.kind {
            ActionKind::CircuitBreaker => {
                let timeout = self.there("timeout", draft.timeout.as_deref(), time::EXPECTED);
                let timeout = timeout.and_then(|text| self.findings.duration(&self.path("timeout"), text));
                let fallback = self.mode("fallback", draft.fallback.as_deref(), &[CACHE_ONLY]);
                let isolation = self.isolation();
                let probe = self.percent(
                    "halfOpen.initialWeightPercent",
                    draft.probe_percent.unwrap_or(i64::from(Percent::DEFAULT_PROBE.get())),
                    1,
                );
                let route = self.route();
                Some(Action::CircuitBreaker {
                    timeout: timeout?,
                    fallback: fallback?,
                    isolation: isolation?,
                    route,
                    probe: probe?,
                })
            }
            ActionKind::IsolatePods => self.isolation().map(Action::IsolatePods),
            ActionKind::Mode => self.mode("mode", draft.mode.as_deref(), &[CACHE_ONLY, NORMAL]).map(Action::Mode),
            ActionKind::RouteWeight => {
                let destination = self.required("destination", draft.destination.as_deref());
                let expected = "the share in percent that the destination gets";
                let weight = self.there("weight", draft.weight, expected);
                let weight = weight.and_then(|weight| self.percent("weight", weight, 0));
                let route = self.route();
                Some(Action::RouteWeight { route, destination: destination?, weight: weight? })
            }
            ActionKind::Notify => {
                let sink = self.required("sink", draft.sink.as_deref())?;
                self.findings.listed(Reason::InvalidPolicy, &self.path("sink"), &sink, &self.surroundings.sinks);
                Some(Action::Notify { sink })
            }
        }
    }

    /// A field that the action cannot do without.
    fn there<T>(&mut self, field: &str, written: Option<T>, expected: &str) -> Option<T> {
        if written.is_none() {
            self.findings.add(Problem::expected(self.path(field), "is missing", expected));
        }
        written
    }

    fn required(&mut self, field: &str, written: Option<&str>) -> Option<String> {
        let text = self.there(field, written, "a name")?;
        self.findings.name(&self.path(field), text);
        (!text.trim().is_empty()).then(|| text.to_owned())
    }

    /// A mode that is built in here, or that the configuration lists.
    fn mode(&mut self, field: &str, written: Option<&str>, built_in: &[&str]) -> Option<String> {
        let mode = self.required(field, written)?;
        if !built_in.contains(&mode.as_str()) && !self.surroundings.modes.contains(&mode) {
            let modes = built_in.iter().copied().chain(self.surroundings.modes.iter().map(String::as_str));
            let found = format!("`{mode}` is not a mode of the configuration");
            let problem = Problem::expected(self.path(field), found, one_of(modes));
            self.findings.add_as(Reason::UnknownMode, problem);
        }
        Some(mode)
    }

    fn percent(&mut self, field: &str, written: i64, least: u8) -> Option<Percent> {
        let percent = u8::try_from(written).ok().filter(|value| *value >= least).and_then(Percent::new);
        if percent.is_none() {
            let expected = format!("a whole number from {least} to 100");
            self.findings.add(Problem::expected(self.path(field), format!("`{written}` is out of range"), expected));
        }
        percent
    }

    fn isolation(&mut self) -> Option<IsolationLimits> {
        let default = IsolationLimits::default();
        let percent = self.draft.max_isolated_percent.unwrap_or(i64::from(default.max_percent.get()));
        let max_percent = self.percent("maxIsolatedPercent", percent, 0);
        let min_healthy = match self.draft.min_healthy {
            None => Some(default.min_healthy),
            // A sole replica is never isolated, so there is no zero.
            Some(written) => {
                let checked = usize::try_from(written).ok().filter(|value| *value >= 1);
                if checked.is_none() {
                    let found = format!("`{written}` is out of range");
                    self.findings.add(Problem::expected(self.path("minHealthy"), found, "a whole number from 1"));
                }
                checked
            }
        };
        Some(IsolationLimits { max_percent: max_percent?, min_healthy: min_healthy? })
    }

    fn route(&mut self) -> RouteRef {
        let written = [("virtualService", &self.draft.virtual_service), ("route", &self.draft.route)];
        for (field, _) in written.into_iter().filter(|(_, name)| name.as_ref().is_some_and(String::is_empty)) {
            self.findings.name(&self.path(field), "");
        }
        RouteRef { virtual_service: self.draft.virtual_service.clone(), route: self.draft.route.clone() }
    }
}
