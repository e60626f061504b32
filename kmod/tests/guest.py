"""Runs the tests of the kernel, as root in the guest: guest.py [--seconds=N] [--seed=N] [--slow=N] [SUITE or TEST...]

The suites are the files of `suites/`, in the order of their names. The module is loaded for each
but those that say `MODULE = False`.
"""

import gc
import importlib
import os
import signal
import sys
import time
import traceback

import harness
from harness import SNIFFER, SYS, TESTS, Agent, busybox, until

SUITES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "suites")


def wanted_tests(wanted):
    """(test, policy of its agent, whether it wants the module), in order."""
    for file in sorted(os.listdir(SUITES)):
        name, kind = os.path.splitext(file)
        if kind != ".py":
            continue
        del TESTS[:]
        suite = importlib.import_module("suites." + name)
        for function, policy in TESTS:
            if not wanted or name in wanted or function.__name__ in wanted:
                yield function, policy, getattr(suite, "MODULE", True)


def put_module(there):
    command = ("insmod", "/t/stcp.ko") if there else ("rmmod", "stcp")
    if os.path.exists(SYS) != there:
        until(" ".join(command), lambda: busybox(*command).returncode == 0)


def on_alarm(*_):
    raise TimeoutError("the test hangs")


def run(function, policy):
    """Whether it passed."""
    SNIFFER.reset()
    agent = None
    began = time.monotonic()
    signal.alarm(100 * harness.SLOW + harness.SECONDS)
    try:
        # Not None alone: the empty policy is one.
        agent = Agent(policy) if policy is not None else None
        function(*[agent][:function.__code__.co_argcount])
        SNIFFER.verdict()
        word = "ok"
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        word = "FAILED"
    signal.alarm(0)
    gc.collect()
    print(f"{word:6} {time.monotonic() - began:6.1f} s  {function.__name__}", flush=True)
    if agent:
        agent.stop()
    if word == "FAILED":
        end_children()
    return word == "ok"


def end_children():
    """What a test left when it failed would fail the next ones: a child may have the agent's device open."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        for child in map(int, file.read().split()):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def main():
    os.environ["TOWLINE_HOME"] = "/tmp/home"
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, on_alarm)
    passed, failed = 0, []
    wanted = []
    for argument in sys.argv[1:]:
        name, _, value = argument.partition("=")
        if name == "--seconds":
            harness.SECONDS = int(value)
        elif name == "--slow":
            harness.SLOW = int(value)
            # The library's own tests read it.
            os.environ["TOWLINE_SLOW"] = value
        elif name == "--seed":
            harness.SEED = int(value)
        else:
            wanted.append(argument)
    for function, policy, module in wanted_tests(wanted):
        put_module(module)
        if run(function, policy):
            passed += 1
            continue
        failed.append(function.__name__)
        if len(failed) == 5:
            print("too many failed: the rest is not run")
            break
    for name in failed:
        print("FAILED", name)
    print(f"{passed} passed, {len(failed)} failed", flush=True)
    # Threads that hang must not keep the guest.
    os._exit(1 if failed or not passed else 0)


main()
