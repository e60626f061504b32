//! The crates, their layers, and who may import whom: an allow-list that holds no idle row.

/// One crate: its layer, what it may import, and what its tests may import besides.
pub(super) struct Room {
    pub(super) package: &'static str,
    pub(super) layer: Layer,
    pub(super) imports: &'static [&'static str],
    pub(super) test_imports: &'static [&'static str],
}

/// How far up a crate lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    Base,
    Protocol,
    Driver,
    Program,
    Tool,
}

const WIRE: &str = "towline-wire";
const RECOVERY: &str = "towline-recovery";
const IDENTITY: &str = "towline-identity";
pub(super) const SIM: &str = "towline-sim";
const TESTKIT: &str = "towline-testkit";
pub(super) const QUIC: &str = "towline-quic";
const HTTP3: &str = "towline-http3";
const LINK: &str = "towline-link";
const MESSAGE: &str = "towline-message";
pub(super) const STCP: &str = "towline-stcp";
const PRELOAD: &str = "towline-preload";
const LAB: &str = "towline-lab";
pub(super) const TOWLINE: &str = "towline";
pub(super) const AGENT: &str = "towline-agent";
pub(super) const RELAY: &str = "towline-relay";
pub(super) const TRANSFER: &str = "towline-transfer";
const GATEWAY: &str = "towline-gateway";

/// Every crate of the workspace.
pub(super) const ROOMS: &[Room] = &[
    Room {
        package: WIRE,
        layer: Layer::Base,
        imports: &[],
        test_imports: &[],
    },
    Room {
        package: RECOVERY,
        layer: Layer::Base,
        imports: &[WIRE],
        test_imports: &[SIM],
    },
    Room {
        package: IDENTITY,
        layer: Layer::Base,
        imports: &[],
        test_imports: &[],
    },
    // Its `World` drives engines without importing one: `quic`'s tests, `lab` and the fuzz bodies share it.
    Room {
        package: SIM,
        layer: Layer::Base,
        imports: &[WIRE],
        test_imports: &[],
    },
    Room {
        package: TESTKIT,
        layer: Layer::Base,
        imports: &[],
        test_imports: &[],
    },
    Room {
        package: QUIC,
        layer: Layer::Protocol,
        imports: &[WIRE, RECOVERY, IDENTITY],
        test_imports: &[SIM, TESTKIT],
    },
    Room {
        package: HTTP3,
        layer: Layer::Protocol,
        imports: &[WIRE],
        test_imports: &[],
    },
    Room {
        package: MESSAGE,
        layer: Layer::Protocol,
        imports: &[WIRE],
        test_imports: &[],
    },
    Room {
        package: LINK,
        layer: Layer::Protocol,
        imports: &[WIRE],
        test_imports: &[],
    },
    Room {
        package: STCP,
        layer: Layer::Protocol,
        imports: &[WIRE, IDENTITY],
        test_imports: &[TESTKIT],
    },
    // `sim` is for the feature `testing`. Its tests put `relay`, a floor above, between two endpoints.
    Room {
        package: TOWLINE,
        layer: Layer::Driver,
        imports: &[WIRE, IDENTITY, SIM, QUIC, HTTP3, MESSAGE, STCP, LINK],
        test_imports: &[RELAY, TOWLINE],
    },
    Room {
        package: LAB,
        layer: Layer::Driver,
        imports: &[
            WIRE, RECOVERY, IDENTITY, SIM, TESTKIT, QUIC, HTTP3, MESSAGE, LINK,
        ],
        test_imports: &[],
    },
    Room {
        package: AGENT,
        layer: Layer::Program,
        imports: &[WIRE, IDENTITY, STCP, TOWLINE],
        test_imports: &[],
    },
    Room {
        package: RELAY,
        layer: Layer::Program,
        imports: &[SIM, TOWLINE],
        test_imports: &[],
    },
    Room {
        package: TRANSFER,
        layer: Layer::Program,
        imports: &[WIRE, TOWLINE],
        test_imports: &[],
    },
    Room {
        package: GATEWAY,
        layer: Layer::Program,
        imports: &[TOWLINE, LINK, WIRE],
        test_imports: &[],
    },
    Room {
        package: PRELOAD,
        layer: Layer::Program,
        imports: &[WIRE],
        test_imports: &[],
    },
    Room {
        package: "towline-cli",
        layer: Layer::Program,
        imports: &[
            IDENTITY, TOWLINE, LINK, LAB, AGENT, RELAY, TRANSFER, GATEWAY,
        ],
        test_imports: &[PRELOAD],
    },
    // The native half of the Python package, whose tests are in Python.
    Room {
        package: "towline-py",
        layer: Layer::Program,
        imports: &[TOWLINE],
        test_imports: &[],
    },
    Room {
        package: "towline-examples",
        layer: Layer::Program,
        imports: &[TOWLINE],
        test_imports: &[],
    },
    Room {
        package: "xtask",
        layer: Layer::Tool,
        imports: &[],
        test_imports: &[],
    },
];

/// Whether a crate takes bytes and time as arguments.
pub(crate) fn is_sans_io(package: &str) -> bool {
    ROOMS
        .iter()
        .any(|room| room.package == package && room.layer <= Layer::Protocol)
}

/// Whether a crate is a helper of the project's own.
pub(crate) fn is_tool(package: &str) -> bool {
    ROOMS
        .iter()
        .any(|room| room.package == package && room.layer == Layer::Tool)
}
