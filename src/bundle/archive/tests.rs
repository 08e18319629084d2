use std::io::Write;

use flate2::write::GzEncoder;
use flate2::{Compress, Compression, FlushCompress};
use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

use super::*;
use crate::bundle::{Limits, Refusal};
use crate::model::reason::Reason;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The start of a gzip stream that unpacks to `start` and then to `block` many times, made without packing all that.
fn endless(start: &[u8], block: &[u8], times: usize) -> Vec<u8> {
    // After a full flush, what follows does not depend on what went before.
    let packed = |bytes: &[u8]| {
        let mut packed = Vec::with_capacity(bytes.len() + 1024);
        Compress::new(Compression::fast(), false).compress_vec(bytes, &mut packed, FlushCompress::Full).unwrap();
        packed
    };
    let gzip_header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    [gzip_header.to_vec(), packed(start), packed(block).repeat(times)].concat()
}

fn header(kind: EntryType, name: &[u8], size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    // By hand: the crate itself refuses the names that matter here.
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    header
}

fn tar_of(entries: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, bytes) in entries {
        builder.append(&header(*kind, name.as_bytes(), bytes.len() as u64), *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

fn refused(bytes: &[u8]) -> Refusal {
    read(bytes, &Limits::default()).unwrap_err()
}

fn refused_entries(entries: &[(EntryType, &str, &[u8])]) -> Reason {
    refused(&gzip(&tar_of(entries))).reason()
}

const FILE: EntryType = EntryType::Regular;

#[test]
fn files_come_back_and_directories_are_passed_over() {
    let tar =
        tar_of(&[(EntryType::Directory, "./a/", b""), (FILE, "./a/b.rego", b"package a"), (FILE, "/data.json", b"{}")]);
    let files = read(&gzip(&tar), &Limits::default()).unwrap();
    let expected = [("a/b.rego", &b"package a"[..]), ("data.json", b"{}")];
    assert_eq!(files, expected.into_iter().map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).collect());
}

#[test]
fn equal_files_give_equal_bytes_with_nothing_of_the_machine_in_them() {
    let files: Files = [("b", "2"), (".manifest", "{}"), ("a/c", "1")]
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()))
        .collect();
    let bytes = write(&files).unwrap();
    assert_eq!(bytes, write(&files.clone()).unwrap());
    // RFC 1952: magic, deflate, no flags, no time, best compression, unknown system.
    assert_eq!(bytes[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255]);
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
    let mut names = Vec::new();
    for entry in archive.entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        assert_eq!(
            (header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap(), header.mode().unwrap()),
            (0, 0, 0, 0o644)
        );
        assert_eq!(header.username_bytes(), Some(&b""[..]));
        names.push(entry.path().unwrap().display().to_string());
    }
    assert_eq!(names, [".manifest", "a/c", "b"]);
}

#[test]
fn a_long_name_survives() {
    let name = format!("{}/x.rego", "long".repeat(60));
    let files = Files::from([(name, b"package x".to_vec())]);
    assert_eq!(read(&write(&files).unwrap(), &Limits::default()).unwrap(), files);
}

#[test]
fn an_entry_that_leads_out_of_the_bundle_is_refused() {
    for name in ["../etc/passwd", "a/../../b", "/../x", "..", "a\\..\\b"] {
        assert_eq!(refused_entries(&[(FILE, "ok", b""), (FILE, name, b"")]), Reason::PathEscape, "{name}");
    }
}

#[test]
fn a_long_name_that_leads_out_is_refused() {
    let name = format!("{}../../../x", "a/".repeat(60));
    let mut tar = tar_of(&[(EntryType::GNULongName, "././@LongLink", format!("{name}\0").as_bytes())]);
    tar.truncate(1024);
    tar.extend(tar_of(&[(FILE, "x", b"")]));
    assert_eq!(refused(&gzip(&tar)).reason(), Reason::PathEscape);
}

#[test]
fn links_and_devices_are_refused() {
    for kind in
        [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Block, EntryType::Fifo, EntryType::new(b'V')]
    {
        assert_eq!(refused_entries(&[(FILE, "ok", b""), (kind, "x.rego", b"")]), Reason::NotAFile, "{kind:?}");
    }
}

#[test]
fn a_file_that_comes_twice_is_refused_however_it_is_spelled() {
    for second in ["data.json", "./data.json", "/data.json"] {
        assert_eq!(refused_entries(&[(FILE, "data.json", b"{}"), (FILE, second, b"{}")]), Reason::DuplicateFile);
    }
}

#[test]
fn a_hundred_thousand_entries_are_refused() {
    let entry = header(EntryType::Directory, b"d/", 0);
    let bytes = endless(&[], &entry.as_bytes().repeat(1_000), 100);
    let wide = Limits { unpacked_bytes: u64::MAX, ratio: u64::MAX, ..Limits::default() };
    assert_eq!(read(&bytes, &wide).unwrap_err(), Refusal::TooManyEntries { limit: 20_000 });
    assert_eq!(refused(&bytes).reason(), Reason::BundleTooLarge);
}

#[test]
fn a_gzip_bomb_is_stopped_before_it_is_unpacked() {
    let start = tar_of(&[(FILE, "data.json", b"{}")]);
    for times in [128, 3_000] {
        let bomb = endless(&start, &vec![0; 1 << 20], times);
        assert!(bomb.len() < 16 << 20);
        match refused(&bomb) {
            Refusal::TooLarge { what, limit } => assert!(what.contains("unpacks") && limit <= 64 << 20, "{what}"),
            other => panic!("{other}"),
        }
    }
    // Within one file too.
    let large = header(FILE, b"data.json", 8 << 20);
    let bomb = endless(large.as_bytes(), &vec![b' '; 1 << 20], 8);
    assert!(matches!(refused(&bomb), Refusal::TooLarge { what, .. } if what.contains("unpacks")));
    // A header that promises what does not come takes no memory ahead.
    let promise = header(FILE, b"data.json", 8 << 20);
    let mut tar = promise.as_bytes().to_vec();
    tar.extend([b' '; 512]);
    assert_eq!(refused(&gzip(&tar)).reason(), Reason::BundleInvalid);
    let huge = header(FILE, b"data.json", 1 << 40);
    assert_eq!(refused(&gzip(huge.as_bytes())).reason(), Reason::BundleTooLarge);
}

#[test]
fn an_archive_that_is_too_large_is_not_looked_at() {
    let limits = Limits { archive_bytes: 10, ..Limits::default() };
    assert_eq!(read(&[0; 11], &limits).unwrap_err(), Refusal::TooLarge { what: "the bundle".into(), limit: 10 });
}

#[test]
fn what_is_no_archive_is_refused() {
    let good = gzip(&tar_of(&[(FILE, "data.json", b"{\"a\": 1}")]));
    for bytes in [
        &b""[..],
        b"\x1f\x8b",
        b"hello",
        &gzip(b""),
        &gzip(b"hello"),
        &gzip(&[0; 1024]),
        &good[..good.len() - 1],
        &good[..40],
    ] {
        assert_eq!(refused(bytes).reason(), Reason::BundleInvalid);
    }
}

#[test]
fn nothing_may_follow_the_end() {
    let mut tar = tar_of(&[(FILE, "data.json", b"{}")]);
    tar.extend([0; 4096]);
    assert!(read(&gzip(&tar), &Limits::default()).is_ok(), "padding is usual");
    tar.push(b'x');
    assert_eq!(refused(&gzip(&tar)).reason(), Reason::BundleInvalid);
    // Beyond gzip's own end neither: many small members would take long to read.
    let good = gzip(&tar_of(&[(FILE, "data.json", b"{}")]));
    for after in [&b"more"[..], &gzip(b""), &[0]] {
        assert_eq!(refused(&[&good, after].concat()).reason(), Reason::BundleInvalid);
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read(files in prop::collection::btree_map("[a-z.]{1,8}(/[a-z]{1,60}){0,4}", prop::collection::vec(any::<u8>(), 0..600), 1..8)) {
        prop_assume!(files.keys().all(|path| path.split('/').all(|part| part != "." && part != "..")));
        let bytes = write(&files).unwrap();
        prop_assert_eq!(read(&bytes, &Limits::default()).unwrap(), files);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = read(&bytes, &Limits::default());
        let _ = read(&gzip(&bytes), &Limits::default());
    }

    /// The layers below gzip see what somebody wrote on purpose.
    #[test]
    fn a_changed_tar_is_read_or_refused_and_never_grows(
        changes in prop::collection::vec((0_usize..3072, any::<u8>()), 1..12),
        cut in prop::option::of(0_usize..3072),
        fix in any::<bool>(),
    ) {
        let mut tar = tar_of(&[(FILE, "a/b.rego", b"package a"), (FILE, "data.json", b"{}")]);
        for (at, byte) in changes {
            let length = tar.len();
            tar[at % length] = byte;
        }
        if fix {
            // Checksums that fit let the change through to what lies behind them.
            for start in [0, 1024] {
                let mut block = Header::new_old();
                block.as_mut_bytes().copy_from_slice(&tar[start..start + 512]);
                block.set_cksum();
                tar[start..start + 512].copy_from_slice(block.as_bytes());
            }
        }
        if let Some(cut) = cut {
            tar.truncate(cut);
        }
        if let Ok(files) = read(&gzip(&tar), &Limits::default()) {
            prop_assert!(files.values().map(Vec::len).sum::<usize>() <= tar.len());
        }
    }
}
