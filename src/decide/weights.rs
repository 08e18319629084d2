//! Arithmetic of route weights: whole numbers that keep the route's total, by largest remainder.

use crate::model::effect::{Destination, Weight};
use crate::model::quantity::Percent;
use crate::model::reason::Reason;

const HUNDRED: u128 = 100;

/// Where a route's traffic is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divert {
    /// Subset, else host, of the destination.
    pub to: String,
    /// Its share of the total while nothing has come back.
    pub share: Percent,
    /// How much of the diversion has come back.
    pub back: Percent,
}

/// Why a route cannot be reweighted as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// The one destination called `name`.
pub(super) fn destination<'a>(weights: &'a [Weight], name: &str) -> Result<&'a Destination, Unfit> {
    let mut called = weights.iter().map(|weight| &weight.destination).filter(|to| to.is_called(name));
    match (called.next(), called.next()) {
        (Some(to), None) => Ok(to),
        (Some(_), Some(_)) => Err(Unfit {
            reason: Reason::AmbiguousRoute,
            message: format!("several destinations of the route are called `{name}`; expected one"),
        }),
        (None, _) => {
            let there: Vec<String> = weights.iter().map(|weight| weight.destination.to_string()).collect();
            let message = format!("no destination of the route has `{name}` as subset or host: {}", there.join(", "));
            Err(Unfit { reason: Reason::NoFallbackDestination, message })
        }
    }
}

/// The weights that `divert` asks for, from those that were found. Every weight is written out, none is negative,
/// the total is that of `found`.
///
/// A share that came back shows as at least one, and never as all, where the total allows it: a probe without any
/// traffic would never give evidence.
pub(super) fn diverted(found: &[Weight], divert: &Divert) -> Result<Vec<Weight>, Unfit> {
    let to = destination(found, &divert.to)?;
    // Istio's rule: a single destination takes everything, weight or none; among several, none means zero.
    let single = found.len() == 1;
    let weight_of = |weight: &Weight| u128::from(weight.weight.unwrap_or(if single { 100 } else { 0 }));
    let total: u128 = found.iter().map(weight_of).sum();
    if total == 0 {
        let message = "the route's weights add up to nothing".to_owned();
        return Err(Unfit { reason: Reason::UnsupportedRoute, message });
    }
    let of_others: u128 = found.iter().filter(|weight| weight.destination != *to).map(weight_of).sum();
    // Shares over a common denominator, so that nothing is rounded before the end.
    let (share, back) = (u128::from(divert.share.get()), u128::from(divert.back.get()));
    let (kept, open) = (HUNDRED.saturating_sub(share), HUNDRED.saturating_sub(back));
    let others = of_others.max(1);
    let denominator = HUNDRED.saturating_mul(HUNDRED).saturating_mul(others);
    let numerator = |weight: &Weight| {
        let original = weight_of(weight);
        let while_active = if weight.destination != *to {
            product(&[total, kept, original])
        } else if of_others == 0 {
            product(&[total, HUNDRED])
        } else {
            product(&[total, share, of_others])
        };
        product(&[while_active, open]).saturating_add(product(&[original, back, HUNDRED, others]))
    };
    let shares: Vec<u128> = found.iter().map(numerator).collect();
    let index = found.iter().position(|weight| weight.destination == *to);
    let mut whole = largest_remainder(&shares, denominator, total, index);
    let others_now = of_others > 0 && whole.iter().enumerate().all(|(at, weight)| Some(at) == index || *weight == 0);
    if back > 0 && others_now && total >= 2 {
        lend_one(&mut whole, &shares, index);
    }
    let written = found.iter().zip(whole).map(|(weight, value)| Weight {
        destination: weight.destination.clone(),
        weight: Some(u32::try_from(value).unwrap_or(u32::MAX)),
    });
    Ok(written.collect())
}

fn product(factors: &[u128]) -> u128 {
    factors.iter().fold(1, |product, factor| product.saturating_mul(*factor))
}

/// Rounds `shares / denominator` to whole numbers that add up to `total`. Among equal remainders `preferred` comes
/// first, then the route's own order.
fn largest_remainder(shares: &[u128], denominator: u128, total: u128, preferred: Option<usize>) -> Vec<u128> {
    let part = |share: &u128| share.checked_div(denominator).unwrap_or(0);
    let mut whole: Vec<u128> = shares.iter().map(part).collect();
    let left = total.saturating_sub(whole.iter().sum());
    let mut order: Vec<(u128, usize)> =
        shares.iter().enumerate().map(|(index, share)| (share.checked_rem(denominator).unwrap_or(0), index)).collect();
    let late = |index: &usize| (Some(*index) != preferred, *index);
    order.sort_by(|(a, i), (b, j)| b.cmp(a).then_with(|| late(i).cmp(&late(j))));
    for (_, index) in order.into_iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
        if let Some(weight) = whole.get_mut(index) {
            *weight = weight.saturating_add(1);
        }
    }
    whole
}

/// Moves one from the destination at `from` to the other with the largest share.
fn lend_one(whole: &mut [u128], shares: &[u128], from: Option<usize>) {
    let others = shares.iter().enumerate().filter(|(index, _)| Some(*index) != from);
    // The first of equals, as everywhere.
    let to = others.rev().max_by_key(|(_, share)| **share).map(|(index, _)| index);
    if let (Some(from), Some(to)) = (from, to) {
        for (index, weight) in whole.iter_mut().enumerate() {
            if index == from {
                *weight = weight.saturating_sub(1);
            } else if index == to {
                *weight = weight.saturating_add(1);
            }
        }
    }
}

/// How much of the total lies elsewhere than it was found: grows with the diversion.
pub(super) fn distance(found: &[Weight], now: &[Weight]) -> u64 {
    let of = |weights: &[Weight], to: &Destination| {
        let weight = weights.iter().find(|weight| weight.destination == *to);
        weight.and_then(|weight| weight.weight).unwrap_or(0)
    };
    now.iter().map(|weight| u64::from(weight.weight.unwrap_or(0).saturating_sub(of(found, &weight.destination)))).sum()
}

#[cfg(test)]
mod tests;
