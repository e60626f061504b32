//! Which path leads where.

use super::Routes;

fn routes(paths: &[&'static str]) -> Routes<&'static str> {
    let mut routes = Routes::default();
    for path in paths {
        routes.add(path, *path);
    }
    routes
}

#[test]
fn an_exact_path_goes_before_the_longest_prefix() {
    let routes = routes(&["/files/*", "/files/new", "/files/old/*", "/"]);
    for (path, found) in [
        ("/", Some("/")),
        ("/files/new", Some("/files/new")),
        ("/files/new/", Some("/files/*")),
        ("/files/newer", Some("/files/*")),
        ("/files/", Some("/files/*")),
        ("/files/old/1/2", Some("/files/old/*")),
        ("/files/old", Some("/files/*")),
        ("/files", None),
        ("/filesystem", None),
        ("/other", None),
        ("*", None),
        ("", None),
    ] {
        assert_eq!(routes.find(path).copied(), found, "{path}");
    }
}

#[test]
fn a_star_means_something_only_after_the_last_slash() {
    let routes = routes(&["/*", "/a*"]);
    assert_eq!(routes.find("/a*"), Some(&"/a*"));
    assert_eq!(routes.find("/ab"), Some(&"/*"));
    assert_eq!(routes.find("/"), Some(&"/*"));
}

#[test]
#[should_panic(expected = "`/a` has two handlers")]
fn two_handlers_of_one_path_are_refused() {
    routes(&["/a", "/a"]);
}

#[test]
#[should_panic(expected = "`/a/*` has two handlers")]
fn two_handlers_of_one_prefix_are_refused() {
    routes(&["/a/*", "/a/*"]);
}

#[test]
#[should_panic(expected = "begins with no slash")]
fn a_path_without_a_slash_is_refused() {
    routes(&["a"]);
}
