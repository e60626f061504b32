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
