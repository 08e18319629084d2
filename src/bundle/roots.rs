//! Roots: which part of the data document a bundle owns.
//!
//! Source: OPA's bundle documentation, "roots", and `RootPathsOverlap` in `v1/bundle/bundle.go`: paths are compared by
//! segment, so `a` and `ab` do not overlap, `a` and `a/b` do, and the empty root overlaps everything.

use std::fmt;

/// A path below `data`, by segments; without any it is all of `data`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Root {
    segments: Vec<String>,
}

impl Root {
    /// From its spelling in a manifest; slashes at both ends mean nothing.
    pub fn new(written: &str) -> Self {
        let trimmed = written.trim_matches('/');
        let segments = if trimmed.is_empty() { Vec::new() } else { trimmed.split('/').map(str::to_owned).collect() };
        Self { segments }
    }

    /// All of `data`.
    pub fn everything() -> Self {
        Self { segments: Vec::new() }
    }

    /// Whether the path lies in this root.
    pub fn contains(&self, path: &[impl AsRef<str>]) -> bool {
        self.segments.len() <= path.len() && self.leads(path)
    }

    /// Whether the path is a step on the way to this root.
    pub(super) fn is_below(&self, path: &[impl AsRef<str>]) -> bool {
        path.len() < self.segments.len() && self.leads(path)
    }

    fn leads(&self, path: &[impl AsRef<str>]) -> bool {
        self.segments.iter().zip(path).all(|(ours, theirs)| ours == theirs.as_ref())
    }

    /// Whether all of `other` lies in this root.
    pub fn contains_root(&self, other: &Self) -> bool {
        self.contains(&other.segments)
    }

    /// Whether one of the two contains the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains_root(other) || other.contains_root(self)
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.segments.join("/"))
    }
}

/// The first two roots of a list that overlap.
///
/// In sorted order everything between a root and what it contains is contained too, so neighbours tell.
pub(super) fn overlapping(roots: &[Root]) -> Option<(Root, Root)> {
    let mut sorted: Vec<&Root> = roots.iter().collect();
    sorted.sort();
    sorted.windows(2).find_map(|pair| match pair {
        [first, second] if first.overlaps(second) => Some(((*first).clone(), (*second).clone())),
        _ => None,
    })
}

/// For messages: `["a/b", "c"]`, shortened.
pub(super) fn listed(roots: &[Root]) -> String {
    const MOST: usize = 8;
    let shown: Vec<String> = roots.iter().take(MOST).map(|root| format!("\"{root}\"")).collect();
    let more = if roots.len() > MOST { ", …" } else { "" };
    format!("[{}{more}]", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn roots_are_compared_by_segment() {
        let root = Root::new;
        assert!(!root("a").overlaps(&root("ab")));
        assert!(root("a").overlaps(&root("a/b")) && root("a/b").overlaps(&root("/a/")));
        assert!(root("").overlaps(&root("x/y")) && root("/").overlaps(&root("")));
        assert!(root("a/b").contains(&["a", "b", "c"]) && !root("a/b").contains(&["a"]));
        assert!(root("a/b").is_below(&["a"]) && !root("a/b").is_below(&["a", "b"]));
        assert_eq!(root("/a/b/").to_string(), "a/b");
    }

    proptest! {
        #[test]
        fn the_quick_search_finds_an_overlap_exactly_where_there_is_one(
            names in prop::collection::vec("([abx](/[abx]){0,2})?", 0..8),
        ) {
            let roots: Vec<Root> = names.iter().map(|name| Root::new(name)).collect();
            let any = (0..roots.len()).any(|i| (0..i).any(|j| roots[i].overlaps(&roots[j])));
            prop_assert_eq!(overlapping(&roots).is_some(), any);
        }
    }
}
