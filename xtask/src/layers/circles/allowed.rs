//! The arrows that close a circle of files today, and why each is still there.
//!
//! A list that only shrinks: the law fails when a circle has no arrow here, and when an arrow here
//! closes no circle. Of two arrows that close one circle the one that points the wrong way is
//! listed: from a child to its parent, from what is named to what names it.

/// Arrows to one file that may stay for now although they close circles.
pub(in crate::layers) struct Allowed {
    pub(in crate::layers) to: &'static str,
    pub(in crate::layers) from: &'static [&'static str],
    pub(in crate::layers) why: &'static str,
}

impl Allowed {
    /// Each arrow as (from, to).
    pub(in crate::layers) fn arrows(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.from.iter().map(|from| (*from, self.to))
    }
}

/// All of them.
pub(in crate::layers) const ALLOWED: &[Allowed] = &[
    Allowed {
        to: "crates/transfer/src/message.rs",
        from: &["crates/transfer/src/reason.rs"],
        why: "the writers of varints lie with the messages, not in `wire`",
    },
    Allowed {
        to: "crates/transfer/src/store.rs",
        from: &[
            "crates/transfer/src/store/folders.rs",
            "crates/transfer/src/store/parts.rs",
            "crates/transfer/src/store/place.rs",
            "crates/transfer/src/store/writing.rs",
        ],
        why: "steps of one `Store`, each an `impl` of it or in need of its names",
    },
    Allowed {
        to: "crates/identity/src/pin.rs",
        from: &["crates/identity/src/error.rs"],
        why: "one file holds all errors, and some name pins",
    },
    Allowed {
        to: "crates/quic/src/connection/mod.rs",
        from: &[
            "crates/quic/src/connection/aftermath.rs",
            "crates/quic/src/connection/close.rs",
            "crates/quic/src/connection/observe.rs",
            "crates/quic/src/connection/output.rs",
            "crates/quic/src/connection/schedule.rs",
        ],
        why: "stages of one `Connection`: the struct lies beside the public methods that call them",
    },
    Allowed {
        to: "crates/quic/src/endpoint/mod.rs",
        from: &["crates/quic/src/endpoint/admit.rs"],
        why: "admission is a stage of one `Endpoint`: the struct lies beside the public methods that call it",
    },
    Allowed {
        to: "crates/recovery/src/congestion/mod.rs",
        from: &[
            "crates/recovery/src/congestion/bbr/mod.rs",
            "crates/recovery/src/congestion/bbr/model.rs",
            "crates/recovery/src/congestion/bbr/startup.rs",
            "crates/recovery/src/congestion/cubic.rs",
            "crates/recovery/src/congestion/fixed_rate.rs",
            "crates/recovery/src/congestion/host.rs",
            "crates/recovery/src/congestion/hystart.rs",
            "crates/recovery/src/congestion/ledbat.rs",
            "crates/recovery/src/congestion/new_reno.rs",
        ],
        why: "the trait and its samples lie beside the enum of all controllers",
    },
    Allowed {
        to: "crates/sim/src/config.rs",
        from: &[
            "crates/sim/src/aqm.rs",
            "crates/sim/src/bottleneck.rs",
            "crates/sim/src/faults.rs",
            "crates/sim/src/schedule.rs",
        ],
        why: "one file holds a link's settings and their error, and the parts name it",
    },
    Allowed {
        to: "crates/stcp/src/record.rs",
        from: &["crates/stcp/src/limits.rs"],
        why: "the size of a record is a constant of the record layer",
    },
    Allowed {
        to: "crates/stcp/src/session.rs",
        from: &["crates/stcp/src/session/kernel.rs"],
        why: "the hand-over to the kernel is an `impl` of the session",
    },
    Allowed {
        to: "crates/relay/src/tun/mod.rs",
        from: &[
            "crates/relay/src/tun/device.rs",
            "crates/relay/src/tun/ip.rs",
            "crates/relay/src/tun/namespace.rs",
        ],
        why: "addresses and error lie beside the relay that drives its parts",
    },
    Allowed {
        to: "crates/agent/src/agent/mod.rs",
        from: &["crates/agent/src/agent/handshake.rs"],
        why: "the agent's error lies beside the agent",
    },
    Allowed {
        to: "crates/agent/src/agent/programs/mod.rs",
        from: &[
            "crates/agent/src/agent/programs/connect.rs",
            "crates/agent/src/agent/programs/join.rs",
            "crates/agent/src/agent/programs/listen.rs",
            "crates/agent/src/agent/programs/unproven.rs",
        ],
        why: "requests of one `Programs`, each an `impl` of it or in need of its names",
    },
    Allowed {
        to: "crates/agent/src/agent/relay/mod.rs",
        from: &["crates/agent/src/agent/relay/transparent.rs"],
        why: "address helpers of both forms lie in the parent",
    },
    Allowed {
        to: "crates/agent/src/policy/mod.rs",
        from: &[
            "crates/agent/src/policy/own_key.rs",
            "crates/agent/src/policy/text.rs",
        ],
        why: "the policy loads itself through the reader of its text",
    },
    Allowed {
        to: "crates/wire/src/frame.rs",
        from: &["crates/wire/src/frame/parse.rs"],
        why: "`Frame::parse` calls the parser, which makes frames",
    },
    Allowed {
        to: "crates/wire/src/frame/parse.rs",
        from: &["crates/wire/src/frame/ack.rs"],
        why: "the error of parsing lies beside the parser of all frames",
    },
    Allowed {
        to: "crates/wire/src/packet.rs",
        from: &["crates/wire/src/frame/kind.rs"],
        why: "kinds of packets lie with the frames they may hold and name the long header's types",
    },
];
