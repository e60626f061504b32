use serde_json::json;

use super::{Example, Program, bins_of, built, examples_of};

fn program(name: &str) -> Program {
    Program {
        name: name.to_owned(),
        path: format!("target/debug/examples/{name}").into(),
    }
}

#[test]
fn a_server_and_a_client_of_one_name_are_one_example() {
    let names = ["a_client", "b", "echo_client", "echo_server", "z_server"];
    let examples = examples_of(names.map(program).to_vec());
    let alone = |name| Example::Alone(program(name));
    let pair = Example::Pair {
        server: program("echo_server"),
        client: program("echo_client"),
    };
    assert_eq!(
        examples,
        [alone("a_client"), alone("b"), pair, alone("z_server")]
    );
}

#[test]
fn what_cargo_built_is_an_example_or_a_program_of_their_package() {
    let metadata = json!({"packages": [
        {"name": "towline-examples", "targets": [{"name": "no_runtime", "kind": ["bin"]}]},
        {"name": "towline-cli", "targets": [{"name": "towline", "kind": ["bin"]}]},
    ]});
    let bins = bins_of(&metadata);
    assert_eq!(bins, ["no_runtime"]);
    let said = |reason: &str, name: &str, kind: &str, executable: Option<&str>| {
        let target = json!({"name": name, "kind": [kind]});
        let line = json!({"reason": reason, "target": target, "executable": executable});
        built(&line.to_string(), &bins).map(|program| program.name)
    };
    let (artifact, path) = ("compiler-artifact", Some("x"));
    assert_eq!(
        said(artifact, "echo", "example", path).as_deref(),
        Some("echo")
    );
    assert_eq!(
        said(artifact, "no_runtime", "bin", path).as_deref(),
        Some("no_runtime")
    );
    assert_eq!(said(artifact, "towline", "bin", path), None);
    assert_eq!(said(artifact, "towline", "lib", None), None);
    assert_eq!(said("build-finished", "echo", "example", path), None);
    assert_eq!(built("   Compiling towline", &bins), None);
}
