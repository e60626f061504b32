//! Who is believed: pinned keys, certificates, and keys met before.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::net::{Net, SERVER};
use crate::{REDIS, Upgraded, run, serve, upgraded, wait_for_port};

/// `stcp run` with a policy of this text, written beside the keys.
fn with_policy(net: &Net, host: &str, text: &str, command: &[&str]) -> Command {
    let file = net.home(host).join("policy.toml");
    std::fs::create_dir_all(net.home(host)).unwrap();
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let flags = ["stcp", "run", "--tier", "relay", "--policy", file, "--"];
    net.towline(host, flags.iter().chain(command))
}

/// What a host's `stcp status` says of its own key.
fn own_pin(net: &Net, host: &str) -> String {
    let status = run(net.towline(host, ["stcp", "status", "--json"]));
    let status = status.record("towline.stcp.status/1");
    status["keys"][0]["pin"].as_str().unwrap().to_owned()
}

#[test]
fn pinned_keys_let_in_the_pinned_and_nobody_else() {
    let Some(net) = Net::new(&["redis-server", "redis-cli"]) else {
        return;
    };
    let [server_pin, client_pin] = [&net.server, &net.client].map(|host| own_pin(&net, host));
    let policy = format!("[server]\nkey = \"stcp-key.pem\"\npins = [\"{client_pin}\"]\n");
    let _server = Upgraded::start(with_policy(&net, &net.server, &policy, REDIS));
    wait_for_port(&net, 6379);
    let ping = |pin: &str| {
        let policy = format!("[client]\nkey = \"stcp-key.pem\"\npins = [\"{pin}\"]\n");
        let command = ["redis-cli", "-h", SERVER, "ping"];
        run(with_policy(&net, &net.client, &policy, &command))
    };
    ping(&server_pin).expect(0, &["PONG"]);
    let refused = ping(&client_pin);
    assert!(!refused.stdout.contains("PONG"), "{refused:?}");
    let words = "none of our pins names it";
    assert!(refused.stderr.contains(words), "{refused:?}");
    // Another client's key.
    std::fs::remove_file(net.home(&net.client).join("stcp-key.pem")).unwrap();
    own_pin(&net, &net.client);
    let refused = ping(&server_pin);
    assert!(!refused.stdout.contains("PONG"), "{refused:?}");
}

#[test]
fn a_certificate_is_checked_with_its_name_and_clients_may_stay_anonymous() {
    let Some(net) = Net::new(&["redis-server", "redis-cli"]) else {
        return;
    };
    let now = towline::config::unix_now();
    let identity = towline_identity::Identity::generate_dev(&[SERVER], now).unwrap();
    for host in [&net.server, &net.client] {
        std::fs::create_dir_all(net.home(host)).unwrap();
        let certificate = identity.certificate_pem().unwrap();
        std::fs::write(net.home(host).join("cert.pem"), certificate).unwrap();
    }
    let key = net.home(&net.server).join("key.pem");
    std::fs::write(&key, identity.private_key_pem()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let policy = "[server]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\nunauthenticated = \"any-client\"\n";
    let _server = Upgraded::start(with_policy(&net, &net.server, policy, REDIS));
    wait_for_port(&net, 6379);
    let ping = |rest: &str| {
        let policy = format!("[client]\nroots = \"cert.pem\"\n{rest}");
        let command = ["redis-cli", "-h", SERVER, "ping"];
        run(with_policy(&net, &net.client, &policy, &command))
    };
    ping("").expect(0, &["PONG"]);
    let refused = ping("name = \"other.example\"\n");
    assert!(!refused.stdout.contains("PONG"), "{refused:?}");
    assert!(refused.stderr.contains("refused: "), "{refused:?}");
}

#[test]
fn a_changed_key_is_refused_with_what_to_do() {
    let Some(net) = Net::new(&["redis-server", "redis-cli"]) else {
        return;
    };
    let server = serve(&net, 6379, REDIS);
    let ping = || {
        run(upgraded(
            &net,
            &net.client,
            &["redis-cli", "-h", SERVER, "ping"],
        ))
    };
    ping().expect(0, &["PONG", "met for the first time"]);
    server.end();
    // Somebody else's machine under the same address.
    std::fs::remove_file(net.home(&net.server).join("stcp-key.pem")).unwrap();
    let _server = serve(&net, 6379, REDIS);
    let refused = ping();
    assert!(!refused.stdout.contains("PONG"), "{refused:?}");
    for words in ["shows another key", "remove the line of 10.78.2.2:6379"] {
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
}
