//! Caches that somebody or something spoiled.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::{Ancestry, Error, history, read};
use super::upstream::{Upstream, fetched, names_in};

fn pack_of(cache: &Path) -> PathBuf {
    let packs = cache.join("objects/pack");
    let name = names_in(&packs).into_iter().find(|name| Path::new(name).extension().is_some_and(|it| it == "pack"));
    packs.join(name.expect("a fetch left a pack"))
}

type Spoil = &'static dyn Fn(&Path);

/// Packs are written read-only.
fn overwrite(path: &Path, content: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn a_damaged_cache_is_set_aside_and_fetched_anew() {
    let spoils: [(&str, Spoil); 5] = [
        ("the index of a pack is gone", &|cache| {
            fs::remove_file(pack_of(cache).with_extension("idx")).unwrap();
        }),
        ("bytes of a pack changed", &|cache| {
            let pack = pack_of(cache);
            let mut bytes = fs::read(&pack).unwrap();
            let end = bytes.len() - 20;
            bytes[12..end].fill(0xAA);
            overwrite(&pack, &bytes);
        }),
        ("the head is no commit's name", &|cache| fs::write(cache.join("refs/tradeguard/head"), "spoiled").unwrap()),
        ("the head is gone", &|cache| fs::remove_file(cache.join("refs/tradeguard/head")).unwrap()),
        ("it is no repository at all", &|cache| {
            fs::remove_dir_all(cache).unwrap();
            fs::create_dir(cache).unwrap();
            fs::write(cache.join("x"), "x").unwrap();
        }),
    ];
    for (what, spoil) in spoils {
        let upstream = Upstream::new();
        let first = upstream.commit_file("a.yaml", "1");
        fetched(&upstream, None);
        spoil(&upstream.cache());
        let error = read(&upstream.cache(), &upstream.remote(""), &first).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{what}: {error}");
        assert_eq!(error.reason().as_str(), "SourceCacheFailed");
        // With the remote away, what is there stays there.
        let away = upstream.directory_moved_away();
        assert!(upstream.fetch("", Some(&first)).is_err(), "{what}");
        assert_eq!(upstream.beside_the_cache(), ["source"], "{what}");
        away.back();
        let second = upstream.commit_file("a.yaml", "2");
        assert_eq!(fetched(&upstream, Some(&first)), (second.clone(), Ancestry::Descends), "{what}");
        assert_eq!(upstream.beside_the_cache(), ["source", "source.damaged"], "{what}");
        assert_eq!(fetched(&upstream, Some(&second)), (second, Ancestry::Same), "{what}");
    }
}

#[test]
fn what_a_killed_fetch_left_is_no_hindrance_and_goes() {
    let upstream = Upstream::new();
    let first = upstream.commit_file("a.yaml", "1");
    fetched(&upstream, None);
    let cache = upstream.cache();
    let leftovers = [cache.join("refs/tradeguard/head.lock"), cache.join("objects/pack/.tmpHalf")];
    for path in &leftovers {
        fs::write(path, "x").unwrap();
    }
    let second = upstream.commit_file("a.yaml", "2");
    assert_eq!(fetched(&upstream, Some(&first)), (second.clone(), Ancestry::Descends));
    assert!(leftovers.iter().all(|path| !path.exists()));
    // Killed between the two renames of a replacement: the fresh one is whole and takes its place.
    fs::rename(&cache, cache.with_extension("new")).unwrap();
    assert_eq!(read(&cache, &upstream.remote(""), &second).unwrap().id, second);
    // Killed before: half a fresh one goes.
    fs::create_dir(cache.with_extension("new")).unwrap();
    assert_eq!(fetched(&upstream, Some(&second)), (second, Ancestry::Same));
    assert_eq!(upstream.beside_the_cache(), ["source"]);
}

#[test]
fn a_worn_cache_is_replaced_and_keeps_the_accepted_commit() {
    let upstream = Upstream::new();
    let first = upstream.commit_file("policies/a.yaml", "1");
    let accepted = upstream.commit_file("policies/a.yaml", "2");
    fetched(&upstream, None);
    let cache = upstream.cache();
    for number in 0..60 {
        fs::write(cache.join(format!("objects/pack/pack-{number:040}.pack")), "").unwrap();
    }
    // Nothing changed: nothing is fetched.
    assert_eq!(fetched(&upstream, Some(&accepted)), (accepted.clone(), Ancestry::Same));
    assert_eq!(names_in(&cache.join("objects/pack")).len(), 62);
    // The branch no longer has the accepted commit, so only the old cache does.
    upstream.git(&["reset", "-q", "--hard", &first]);
    let other = upstream.commit_file("policies/a.yaml", "3");
    assert_eq!(fetched(&upstream, Some(&accepted)), (other, Ancestry::Rewritten));
    assert_eq!(names_in(&cache.join("objects/pack")).len(), 2);
    assert_eq!(upstream.beside_the_cache(), ["source"]);
    let kept = read(&cache, &upstream.remote("policies"), &accepted).unwrap();
    assert_eq!(super::files(&kept), [("a.yaml", "2")]);
    assert_eq!(history(&cache, &accepted, 10).unwrap()[0].id, accepted);
}

#[test]
fn a_commit_that_was_never_fetched_is_named() {
    let upstream = Upstream::new();
    upstream.commit_file("a.yaml", "1");
    let unknown = "0123456789012345678901234567890123456789";
    let expected =
        format!("commit {unknown} is not in the engine's copy of the repository; expected one that was fetched before");
    let remote = upstream.remote("");
    assert_eq!(read(&upstream.cache(), &remote, unknown).unwrap_err().to_string(), expected);
    fetched(&upstream, None);
    assert_eq!(read(&upstream.cache(), &remote, unknown).unwrap_err().to_string(), expected);
    // A tree's name is no commit's.
    let tree = upstream.git(&["rev-parse", "HEAD^{tree}"]);
    let error = read(&upstream.cache(), &remote, &tree).unwrap_err();
    assert!(matches!(error, Error::CommitNotFound { .. }), "{error}");
    assert!(history(&upstream.cache(), unknown, 1).is_err());
}
