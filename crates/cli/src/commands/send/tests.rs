use super::*;

#[test]
fn the_last_name_of_a_path_travels_and_a_dot_sends_contents() {
    let name = |path: &str| {
        name_of(Path::new(path))
            .unwrap()
            .map(|name| name.to_string())
    };
    assert_eq!(name("a/b"), Some("b".into()));
    assert_eq!(name("a/b/"), Some("b".into()));
    assert_eq!(name("/"), None);
    assert_eq!(name("."), None);
    assert_eq!(name("a/.."), None);
    assert!(name_of(Path::new("x/.towline-part")).is_err());
}

#[test]
fn the_same_name_twice_is_refused_before_anything_is_sent() {
    let folder = std::env::temp_dir();
    let failure = roots(&[folder.clone(), folder]).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(failure.message.contains("two of the paths"), "{failure}");
}

#[test]
fn a_missing_path_is_named() {
    let failure = roots(&["/nowhere/at/all".into()]).unwrap_err();
    assert_eq!(failure.exit, Exit::Other);
    assert!(failure.message.contains("/nowhere/at/all"), "{failure}");
}
