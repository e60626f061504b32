use super::*;

#[test]
fn blocks_are_read_with_their_plans() {
    let page = "\
text
<!-- run: serve needs=redis-server -->
```sh
towline serve \\
    --accept inbox
```

<!-- not run: takes an hour -->
```sh
make test
```
```text
anything
```
";
    let found = blocks("page", page).unwrap();
    let plans: Vec<_> = found.iter().map(|block| &block.plan).collect();
    let needs = vec!["redis-server".to_owned()];
    assert_eq!(
        plans,
        [
            &Plan::Serve { needs },
            &Plan::Not("takes an hour".to_owned()),
            &Plan::Text
        ]
    );
    assert_eq!(found[0].line, 3);
    assert_eq!(
        commands(&found[0].text),
        ["towline serve      --accept inbox"]
    );
}

#[test]
fn a_block_without_a_plan_is_an_error() {
    for page in [
        "```sh\nls\n```\n",
        "```\nls\n```\n",
        "<!-- run -->\nwords between\n```sh\nls\n```\n",
        "```text\n",
    ] {
        assert!(blocks("page", page).is_err(), "{page}");
    }
}

#[test]
fn pins_are_those_that_the_pages_own_commands_print() {
    let block = "\
TOWLINE_HOME=a towline stcp key     # on the server
TOWLINE_HOME=b towline stcp key     # on the client
towline stcp key # of nobody in particular
";
    let pins = pins_in(block, "sha256/aa\nsha256/bb\nsha256/cc\n");
    let expected = [("SERVER", "sha256/aa"), ("CLIENT", "sha256/bb")];
    assert_eq!(
        pins,
        expected.map(|(role, pin)| (role.to_owned(), pin.to_owned()))
    );
}

#[test]
fn of_a_url_only_the_pin_is_filled_in() {
    assert_eq!(
        pin_of("towline://127.0.0.1:4433/#sha256/aa&raw-key"),
        Some("sha256/aa")
    );
    assert_eq!(pin_of("towline://127.0.0.1:4433/"), None);
    let mut machines = Machines {
        folder: PathBuf::new(),
        servers: Vec::new(),
        count: 0,
        url_pin: None,
        pins: BTreeMap::new(),
    };
    let url = "towline send x 'towline://elsewhere:1/y#sha256/…'";
    assert!(machines.filled_in(url).is_err(), "no server runs");
    machines.url_pin = Some("sha256/aa".into());
    assert_eq!(
        machines.filled_in(url).unwrap(),
        "towline send x 'towline://elsewhere:1/y#sha256/aa'"
    );
    machines.pins.insert("CLIENT".into(), "sha256/bb".into());
    assert_eq!(
        machines.filled_in("--client-pin sha256/CLIENT").unwrap(),
        "--client-pin sha256/bb"
    );
    assert!(machines.filled_in("towline echo 'towline://…'").is_err());
}

#[test]
fn every_page_says_of_each_block_what_becomes_of_it() {
    for page in PAGES {
        let text = fs::read_to_string(root().join(page)).unwrap();
        assert!(!blocks(page, &text).unwrap().is_empty(), "{page}");
    }
}
