# Every target is one `cargo xtask` command; `cargo xtask help` lists them with their arguments.
.PHONY: help run test check setup-system install interop interop-h3 interop-wt sim planted kmod-test kmod-debug fuzz bench-quic bench-wt bench-link link-chaos bench-stcp bench-neighbour bench-paths bench-seed bench-compare counts flood

help:
	@echo "make run            the demonstration: 1 GiB of real files between two processes, every hash checked"
	@echo "make test           every suite; what is skipped is listed at the end"
	@echo "make check          fmt, clippy, layers, house, docs, deny, caps table, citations, aarch64"
	@echo "make house [ARGS=--json] fields, methods, long files and functions, unwraps and circles of the source, beside their marks"
	@echo "make citations      every MUST of the RFCs: its code, its test, or the issue that will meet it"
	@echo "make examples       every example, which asserts what it shows"
	@echo "make web            the browser client: its committed scripts, its tests"
	@echo "make python         the Python package: built for this interpreter, its types, its tests"
	@echo "make wheel [ARGS=--zig] a release wheel of the Python package in target/wheels; docs/python/installing.md"
	@echo "make readme         every block of README and of the walk-throughs, run as printed"
	@echo "make setup-system   prints, then installs, the system packages the tests can use"
	@echo "make install [PREFIX=/usr/local] [DESTDIR=]   builds and installs program, preload shim and systemd units (not as root: stage it with DESTDIR, docs/secure-tcp-programs.md)"
	@echo "make interop        the whole interop table"
	@echo "make interop-h3     HTTP/3 with other stacks, each client with each server (also part of test)"
	@echo "make interop-wt [ARGS=\"--peer wtransport\"] WebTransport with other stacks, each client with each server"
	@echo "make sim [SEEDS=N] [SEED=x]   the random swarm: N seeds (20000), or one seed again"
	@echo "make planted [ARGS=name]  known bugs are put into a copy of the tree; the tests must find each"
	@echo "make kmod-test [ARGS=--kernel=6.1] the kernel module in QEMU, with Debian's 6.12 or 6.1"
	@echo "make kmod-debug     the same on a kernel with KASAN, lockdep and kmemleak; takes hours"
	@echo "make fuzz [TIME=s] [TARGET=t] each fuzz target for s seconds (600)"
	@echo "make bench-quic [ARGS=--quick] speed beside quinn, s2n-quic and quic-go; the machine must be idle"
	@echo "make bench-wt [ARGS=--quick] WebTransport beside wtransport, in Python beside pywebtransport, web-transport-quinn and aioquic; the machine must be idle"
	@echo "make bench-link [ARGS=--quick] the delta link beside signalk-edge-link: bytes, latency, losses, outages"
	@echo "make link-chaos [RUNS=200] both ends of a delta link are killed again and again; every accepted record is in the sinks once (10 runs in test)"
	@echo "make bench-stcp [ARGS=--quick] secure TCP beside plain TCP, rustls, OpenSSL and stunnel; the machine must be idle"
	@echo "make bench-neighbour [ARGS=--seconds=20] Linux TCP beside Towline on one bottleneck; needs root"
	@echo "make bench-paths [ARGS=--quick] outages and lost handshake packets beside quinn, in real time; needs root"
	@echo "make bench-seed [ARGS=--quick] Freenet's published tables beside ours, into docs/benchmarks.md"
	@echo "make bench-compare BASE=rev|name [ARGS=--virtual] criterion benches against a revision or a saved base"
	@echo "make flood [ARGS=--quick] a server under floods: who still connects, what transfers keep"
	@echo "make counts [ARGS=--record] instruction counts of the hot paths against their baseline"

SEEDS ?= 20000
TIME ?= 600
PREFIX ?= /usr/local

run:
	@cargo xtask run

test:
	@cargo xtask test

check:
	@cargo xtask check

.PHONY: house
house:
	@cargo xtask house $(ARGS)

.PHONY: readme
readme:
	@cargo xtask readme

.PHONY: web
web:
	@cargo xtask web

.PHONY: python
python:
	@cargo xtask python

.PHONY: wheel
wheel:
	@cargo xtask wheel $(ARGS)

.PHONY: examples
examples:
	@cargo xtask examples

.PHONY: citations
citations:
	@cargo xtask citations $(ARGS)

setup-system:
	@cargo xtask setup-system

install:
	@cargo xtask install --prefix "$(PREFIX)" --destdir "$(DESTDIR)"

interop:
	@cargo xtask interop $(ARGS)

interop-h3:
	@cargo xtask interop-h3 $(ARGS)

interop-wt:
	@cargo xtask interop-wt $(ARGS)

# The second form replays the line a failure printed.
sim:
	@cargo xtask sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

# ARGS are names of patches in tests/planted.
planted:
	@cargo xtask planted $(ARGS)

kmod-test:
	@cargo xtask kmod-test $(ARGS)

kmod-debug:
	@cargo xtask kmod-debug $(ARGS)

fuzz:
	@cargo xtask fuzz $(TARGET) --seconds $(TIME)

bench-quic:
	@cargo xtask bench-quic $(ARGS)

bench-wt:
	@cargo xtask bench-wt $(ARGS)

bench-link:
	@cargo xtask bench-link $(ARGS)

RUNS ?= 200
link-chaos:
	@cargo xtask link-chaos --runs $(RUNS) $(ARGS)

bench-stcp:
	@cargo xtask bench-stcp $(ARGS)

bench-neighbour:
	@cargo xtask bench-neighbour $(ARGS)

bench-paths:
	@cargo xtask bench-paths $(ARGS)

bench-seed:
	@cargo xtask bench-seed $(ARGS)

# BASE is a git revision or a baseline's name; a new name saves the tree as it is.
bench-compare:
	@cargo xtask bench-compare $(BASE) $(ARGS)

counts:
	@cargo xtask counts $(ARGS)

flood:
	@cargo xtask flood $(ARGS)
