//! The slot "weights of a VirtualService route": reading, changing and putting back through the API.

use kube::{Resource, api::DynamicObject, core::ApiResource};
use serde_json::Value;

use super::{
    drive::{Freshness, Hold, Seen, Standing},
    error::{Error, Result},
    objects::{Objects, Place},
    record::Held,
};
use crate::model::{
    effect::{Desired, Original, Weight},
    slot::{RouteKey, Slot},
};
use route::Mismatch;

pub mod route;

/// Versions of Istio's API in the order of preference; all hold the same fields.
const VERSIONS: [&str; 3] = ["networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3"];

pub(crate) struct WeightsSlot<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) slot: &'a Slot,
    pub(crate) route: &'a RouteKey,
    pub(crate) seen: &'a Seen,
}

/// The VirtualService as read, if it is there.
pub(crate) struct Live(Option<Value>);

impl WeightsSlot<'_> {
    async fn place(&self) -> Result<Place> {
        let resource = virtual_services(self.objects).await?;
        let RouteKey { namespace, virtual_service, .. } = self.route;
        Ok(Place { resource, namespace: namespace.clone(), name: virtual_service.clone() })
    }

    fn mismatch(&self, source: Mismatch) -> Error {
        Error::NothingMatched { slot: Box::new(self.slot.clone()), source }
    }

    fn misfit(&self) -> Error {
        Error::Misfit { slot: Box::new(self.slot.clone()), what: "a value that is no list of weights" }
    }

    fn weights<'v>(&self, value: &'v Original) -> Result<&'v [Weight]> {
        if let Original::Weights(weights) = value { Ok(weights) } else { Err(self.misfit()) }
    }

    fn read_route(&self, live: &Live) -> Result<Vec<Weight>> {
        let missing = || self.mismatch(Mismatch::NoRoute);
        route::read(live.0.as_ref().ok_or_else(missing)?, self.route).map_err(|source| self.mismatch(source))
    }

    async fn write(&self, live: &Live, weights: &[Weight]) -> Result<()> {
        let Some(object) = &live.0 else { return Ok(()) };
        let operations = route::patch(object, self.route, weights).map_err(|source| self.mismatch(source))?;
        if operations.is_empty() {
            return Ok(());
        }
        self.objects.json_patch(&self.place().await?, &operations).await
    }
}

impl Hold for WeightsSlot<'_> {
    type Live = Live;

    async fn read(&self, held: Option<&Held>, _: Option<&Desired>, how: Freshness) -> Result<Live> {
        if let (Freshness::Cached, Some(object)) = (how, &self.seen.object) {
            return Ok(Live(Some(as_json(object))));
        }
        match self.place().await {
            Ok(place) => Ok(Live(self.objects.get(&place).await?.as_ref().map(as_json))),
            // The kind went, and every object with it.
            Err(Error::NotServed { .. }) if held.is_some() => Ok(Live(None)),
            Err(error) => Err(error),
        }
    }

    fn object_uid(&self, live: &Live) -> Option<String> {
        live.0.as_ref()?.pointer("/metadata/uid")?.as_str().map(str::to_owned)
    }

    fn standing(&self, live: &Live, held: &Held) -> Result<Standing> {
        let found = self.read_route(live)?;
        let ours: Vec<&[Weight]> = ours(held).collect();
        let original = self.weights(&held.original)?;
        Ok(if ours.iter().any(|value| route::same(&found, value)) {
            Standing::Ours
        } else if route::same(&found, original) {
            Standing::Original
        } else {
            Standing::Foreign(Original::Weights(route::new_original(&found, original, &ours)))
        })
    }

    fn is_reached(&self, live: &Live, held: &Held) -> bool {
        let found = self.read_route(live);
        matches!((found, &held.desired), (Ok(found), Desired::Weights(desired)) if route::same(&found, desired))
    }

    async fn intent(&self, live: &Live, original: Option<&Original>, desired: &Desired) -> Result<(Original, Desired)> {
        let Desired::Weights(desired) = desired else { return Err(self.misfit()) };
        let original = match original {
            Some(original) => self.weights(original)?.to_vec(),
            None => self.read_route(live)?,
        };
        let desired = route::to_total(desired, &original);
        Ok((Original::Weights(original), Desired::Weights(desired)))
    }

    async fn apply(&self, live: &Live, held: &Held) -> Result<Original> {
        let Desired::Weights(desired) = &held.desired else { return Err(self.misfit()) };
        self.write(live, desired).await?;
        Ok(held.original.clone())
    }

    async fn restore(&self, live: &Live, held: &Held) -> Result<()> {
        // An object of another uid is another object: nothing of ours is on it.
        let is_the_same = self.object_uid(live).is_some_and(|uid| uid == held.object_uid());
        if !is_the_same {
            return Ok(());
        }
        match self.read_route(live) {
            Ok(found) => {
                let ours: Vec<&[Weight]> = ours(held).collect();
                let back = route::restored(&found, self.weights(&held.original)?, &ours);
                self.write(live, &back).await?;
            }
            // The route itself is gone, and our value with it.
            Err(Error::NothingMatched { .. }) => {}
            Err(error) => return Err(error),
        }
        self.objects.release_ownership(&self.place().await?, held.object_uid()).await
    }
}

/// How the cluster serves VirtualServices.
async fn virtual_services(objects: &Objects) -> Result<ApiResource> {
    let mut last = None;
    for version in VERSIONS {
        match objects.resource(version, "VirtualService").await {
            Err(error @ Error::NotServed { .. }) => last = last.or(Some(error)),
            other => return other,
        }
    }
    let none = || Error::NotServed { api_version: VERSIONS[0].to_owned(), kind: "VirtualService".to_owned() };
    Err(last.unwrap_or_else(none))
}

fn ours(held: &Held) -> impl Iterator<Item = &[Weight]> {
    held.ours().filter_map(|value| match value {
        Desired::Weights(weights) => Some(weights.as_slice()),
        _ => None,
    })
}

fn as_json(object: &DynamicObject) -> Value {
    let mut json = object.data.clone();
    json["metadata"] = serde_json::to_value(object.meta()).expect("metadata is JSON");
    json
}
