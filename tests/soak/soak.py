#!/usr/bin/python3
"""Mixed traffic against a real server for a long time; afterwards nothing may be left behind.

  tests/soak/soak.py [--minutes 30] [--build build/release] [--workers 6] [--insecure]

Clients generate, score, cancel, miss deadlines, send nonsense, read slowly and drop their
connections, while what the server holds is sampled every second. Status 0 when, after a warm-up of
a fifth of the time,
  - the median of its resident memory in the last fifth exceeds that in the second by at most 2 %,
    and the number of its threads stays (of runs of five minutes and more);
  - after the last call its descriptors are those of before the first, no KV block is used, no call
    is active, and every admitted request has ended once;
  - every call has ended with a status that it may end with, the log has no error, and the server
    ends well. 77 when a package is missing.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import sys
import time

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 30
MINUTES_FOR_MEMORY = 5


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE_DIR / "build" / "release")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--insecure", action="store_true", help="no TLS and no API keys")
    parser.add_argument("--json", type=pathlib.Path, help="writes samples and counts there")
    parser.add_argument("--minutes-from-environment", action="store_true",
                        help="as TLM_SOAK_MINUTES says; without it nothing runs, with status 77")
    arguments = parser.parse_args()
    if arguments.minutes_from_environment:
        if "TLM_SOAK_MINUTES" not in os.environ:
            print("skipped: TLM_SOAK_MINUTES does not say for how long")
            sys.exit(77)
        arguments.minutes = float(os.environ["TLM_SOAK_MINUTES"])
    if not 0 < arguments.minutes <= 24 * 60 or not 1 <= arguments.workers <= 64:
        parser.error("--minutes may be up to 1440, --workers 1 to 64")
    return arguments


def prepare_imports(build):
    """Makes the stubs and the integration tests' modules importable."""
    build = build.resolve()
    stubs = build / "tests" / "integration" / "python" / "stubs"
    os.environ["PYTHONPATH"] = str(stubs)
    os.environ["TLM_SOURCE_DIR"] = str(SOURCE_DIR)
    os.environ["TLM_BIN_DIR"] = str(build / "bin")
    tests = SOURCE_DIR / "tests"
    sys.path[:0] = [str(stubs), str(tests / "integration" / "python"), str(tests / "support")]
    try:
        import google.protobuf  # noqa: F401 pylint: disable=import-outside-toplevel,unused-import
        import grpc  # noqa: F401 pylint: disable=import-outside-toplevel,unused-import
    except ImportError as error:
        print(f"skipped: {error} (python3-grpcio and python3-protobuf are needed)")
        sys.exit(77)
    if not (stubs / "stamp").exists():
        print(f"{build} has no stubs: build it first, as tests/run.sh --build-only does")
        sys.exit(2)


def wait_until(condition):
    """Whether it came true; it is looked at for PATIENCE_SECONDS at most."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def watch(server, seconds):
    """Samples of the server, one a second, for so long."""
    import process_watch  # pylint: disable=import-outside-toplevel
    begin = time.monotonic()
    samples = []
    while (now := time.monotonic() - begin) < seconds:
        samples.append(process_watch.take(server.pid, now))
        if len(samples) % 60 == 0:
            last = samples[-1]
            print(f"{now / 60:5.1f} min: rss {last.rss_kib / 1024:.2f} MiB, {last.threads} threads, "
                  f"{last.descriptors} descriptors", flush=True)
        time.sleep(max(0.0, len(samples) - (time.monotonic() - begin)))
    return samples


def faults_of_idle(server, descriptors):
    """What a server without calls still holds."""
    import process_watch  # pylint: disable=import-outside-toplevel
    from tlm.v1 import admin_pb2  # pylint: disable=import-outside-toplevel

    def load():
        return server.admin.GetLoad(admin_pb2.GetLoadRequest(), timeout=PATIENCE_SECONDS)

    def is_idle():
        now = load()
        return now.kv_blocks_used == now.active_calls == now.queued_requests == 0
    found = []
    if not wait_until(is_idle):
        found.append(f"not idle: {load()}")
    if not wait_until(lambda: process_watch.take(server.pid, 0).descriptors <= descriptors):
        now = process_watch.take(server.pid, 0).descriptors
        found.append(f"{now} descriptors are open, {descriptors} were before the first call")
    return found


def sum_of(metrics, name):
    return sum(value for key, value in metrics.items() if re.match(name + r"(\{|$)", key))


def faults_of_counters(server):
    """Whether each admitted request has ended in exactly one terminal counter."""
    metrics = server.metrics()
    admitted = sum_of(metrics, "tlm_requests_admitted_total")
    ended = sum_of(metrics, "tlm_requests_ended_total")
    print(f"metrics: {admitted:.0f} requests admitted, {ended:.0f} ended")
    if admitted == 0 or admitted != ended:
        return [f"{admitted:.0f} requests were admitted, {ended:.0f} ended"]
    return []


def faults_of_end(server):
    """Stops the server and reads its log."""
    server.terminate()
    status, log = server.wait(), server.log()
    found = [] if status == 0 else [f"the server ended with {status}"]
    lines = [line for line in log.splitlines()
             if re.search(r"Z (error|critical) |\"level\":\s*\"(error|critical)\"|^E\d{4} "
                          r"|Sanitizer|runtime error", line)]
    found += [f"log: {line}" for line in lines[:20]]
    stopped = re.findall(r".*stopped: .*", log)
    print(*stopped, sep="\n")
    if not stopped or "kv_blocks_used=0" not in stopped[-1]:
        found.append("the log does not end with kv_blocks_used=0")
    return found


def soak(arguments):
    """Runs it; the faults that were found."""
    import process_watch  # pylint: disable=import-outside-toplevel
    import soak_server  # pylint: disable=import-outside-toplevel
    import traffic  # pylint: disable=import-outside-toplevel
    secure = not arguments.insecure
    print(f"{arguments.minutes:g} minutes, {arguments.workers} workers, "
          f"{'TLS and API keys' if secure else 'no TLS, no API keys'}", flush=True)
    with soak_server.SoakServer("--kv_cache_bytes=32MiB", secure=secure) as server:
        faults_of_idle(server, 1 << 20)  # opens the admin connection
        descriptors = process_watch.take(server.pid, 0).descriptors
        with traffic.Traffic(server, arguments.workers) as clients:
            samples = watch(server, arguments.minutes * 60)
        found = faults_of_idle(server, descriptors) + faults_of_counters(server)
        found += faults_of_end(server)
    codes = clients.codes()
    report(codes, samples)
    if arguments.json:
        arguments.json.write_text(json.dumps({
            "codes": {" ".join(key): count for key, count in sorted(codes.items())},
            "samples": [vars(sample) for sample in samples], "faults": found}, indent=1))
    for text, count in collections.Counter(clients.unexpected()).most_common(20):
        found.append(f"{count} x {text}")
    if arguments.minutes >= MINUTES_FOR_MEMORY:
        found += process_watch.faults(samples)
    return found


def report(codes, samples):
    import process_watch  # pylint: disable=import-outside-toplevel
    for (name, code), count in sorted(codes.items()):
        print(f"  {name:20} {code:20} {count}")
    print(f"{sum(codes.values())} calls and connections in all")
    print(process_watch.describe(samples))
    print(f"resident memory, last fifth against second: {process_watch.growth(samples):+.2%}; "
          f"anonymous: {process_watch.growth(samples, 'anonymous_kib'):+.2%}")


def main():
    arguments = parse_arguments()
    prepare_imports(arguments.build)
    found = soak(arguments)
    for fault in found:
        print(f"FAULT {fault}")
    print("soak: " + (f"{len(found)} faults" if found else "nothing left behind"))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
