use super::*;

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("towline-site-{name}-{}", std::process::id()))
}

fn site(folder: &Path) -> Site {
    Site::generate(&folder.join("site"), &folder.join("list.txt")).unwrap()
}

#[test]
fn a_site_has_files_of_every_size_and_is_the_same_each_time() {
    let folder = folder("sizes");
    let site = site(&folder);
    let sizes: Vec<usize> = site
        .names
        .iter()
        .map(|name| fs::metadata(site.root.join(name)).unwrap().len() as usize)
        .collect();
    assert_eq!((sizes[0], sizes[1], sizes.len()), (LARGEST, 0, FILES));
    for (from, to) in [(1, 10), (100, 1_000), (10_000, 100_000)] {
        let found = sizes.iter().filter(|size| (from..to).contains(*size));
        assert!(found.count() > 50, "{from} to {to}");
    }
    let before = fs::read(site.root.join(&site.names[7])).unwrap();
    let again = self::site(&folder);
    assert_eq!(fs::read(again.root.join(&again.names[7])).unwrap(), before);
    assert_eq!(
        fs::read_to_string(&site.list).unwrap().lines().count(),
        FILES
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_copy_is_equal_only_with_every_byte_of_every_file() {
    let folder = folder("copies");
    let site = site(&folder);
    let copy = folder.join("copy");
    fs::create_dir_all(&copy).unwrap();
    for name in &site.names {
        fs::copy(site.root.join(name), copy.join(name)).unwrap();
    }
    let whole = site.compare(&copy).unwrap();
    assert!(whole > LARGEST, "{whole}");

    let changed = copy.join(&site.names[0]);
    let mut bytes = fs::read(&changed).unwrap();
    bytes[LARGEST / 2] ^= 1;
    fs::write(&changed, &bytes).unwrap();
    assert!(site.compare(&copy).is_err());

    fs::remove_file(&changed).unwrap();
    assert!(site.compare(&copy).is_err());
    fs::remove_dir_all(&folder).unwrap();
}
