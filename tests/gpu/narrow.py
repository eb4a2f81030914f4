"""What a failed stage says by itself: which test fails first, which others do, and which
optimisation it takes."""

import itertools
import json
import pathlib
import re
import shutil

FIRST_SECONDS = 20  # of the first failing test under memcheck
TEST_SECONDS = 10   # of each test alone
SWITCH_SECONDS = 20
LEAST_SECONDS = 2   # with less left nothing is begun
SHOWN_LINES = 40

SWITCHES = ("overlap", "graphs", "library")
# What is turned off: nothing, each alone, everything; and every combination.
SINGLE_SWITCHES = ((), *((switch,) for switch in SWITCHES), SWITCHES)
ALL_SWITCHES = tuple(tuple(itertools.compress(SWITCHES, off))
                     for off in itertools.product((False, True), repeat=3))


def text_of(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def tested_nothing(log):
    if re.search(r"skipped[:,] (there is no GPU|the GPU is)", log):
        return True
    return "[  PASSED  ] 0 tests" in log and "[  FAILED  ]" not in log


def first_failing(log):
    """The test that failed first, or in which the program ended; None where there is none."""
    running = None
    for line in log.splitlines():
        if match := re.match(r"\[ RUN      \] (\S+)", line):
            running = match[1]
        elif match := re.match(r"\[  FAILED  \] ([^\s,]+)", line):
            return match[1]
        elif re.match(r"\[ {7}OK \]|\[  SKIPPED \]", line):
            running = None
    return running


def first_failure(log):
    """The lines of a gtest program that tell of its first failure."""
    lines = log.splitlines()
    name = first_failing(log)
    if name is None:
        return "\n".join(lines[-SHOWN_LINES:])
    begin = next((i for i, line in enumerate(lines)
                  if line.startswith(f"[ RUN      ] {name}")), 0)
    shown = []
    for line in lines[begin:]:
        shown.append(line)
        if line.startswith("[  FAILED  ]"):
            break
    else:
        shown.append(f"the program ended in {name}")
    if len(shown) > SHOWN_LINES:
        shown[SHOWN_LINES - 1:-1] = ["..."]
    return "\n".join(shown)


def names_of(listed):
    """The tests of --gtest_list_tests."""
    suite, names = None, []
    for line in listed.splitlines():
        text = line.split("#")[0].rstrip()
        if line.startswith("  ") and suite is not None:
            names.append(suite + text.strip())
        elif text.endswith(".") and " " not in text:
            suite = text
    return names


def outcome(code, log):
    if isinstance(code, str):
        return code
    if code == 0:
        return "nothing" if tested_nothing(log) else "passed"
    if code < 0:
        return f"signal {-code}"
    return "failed" if code == 1 else f"exit {code}"


def execute(run, command, log, limit, end):
    """As run.execute, but "cut" where it was only `end`, in seconds of the run, that came."""
    left = end - run.seconds()
    code = run.execute(command, log, min(limit, left))
    return "cut" if code == "timeout" and left < limit else code


def sanitizer():
    """compute-sanitizer, or None."""
    path = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    return path if pathlib.Path(path).exists() else None


def memcheck(run, stage, path, name, end):
    """The first failing test alone, where a bad address shows as what it is."""
    tool = sanitizer()
    if tool is None:
        print("no compute-sanitizer here")
        return None
    log = run.out / f"{stage}.memcheck.log"
    code = execute(run, [tool, "--tool", "memcheck", "--error-exitcode", "9", path,
                         f"--gtest_filter={name}"], log, FIRST_SECONDS, end)
    said = [line for line in text_of(log).splitlines() if line.startswith("=========")]
    print(f"{name} under memcheck: {outcome(code, text_of(log))}")
    print("\n".join(said[:15]), flush=True)
    return outcome(code, text_of(log))


def tests(run, stage, path, arguments, seconds):
    """The stage's first failing test under memcheck, then all of its tests one by one, as far as
    the time goes."""
    end = run.seconds() + seconds
    name = first_failing(text_of(run.out / f"{stage}.log"))
    result = {"first": name, "memcheck": None, "tests": []}
    if name is not None:
        result["memcheck"] = memcheck(run, stage, path, name, end)
    listed = run.out / f"{stage}.list.log"
    execute(run, [path, *arguments, "--gtest_list_tests"], listed, TEST_SECONDS, end)
    names = names_of(text_of(listed))
    print(f"{stage}, test by test", flush=True)
    failures = ""
    for name in names:
        if run.seconds() + LEAST_SECONDS > end:
            how = "not run"
        else:
            log = run.out / f"{stage}.one.log"
            code = execute(run, [path, f"--gtest_filter={name}"], log, TEST_SECONDS, end)
            how = outcome(code, text_of(log))
            if how not in ("passed", "cut"):
                failures += f"=== {name}: {how}\n{first_failure(text_of(log))}\n"
            log.unlink()
        result["tests"].append({"test": name, "outcome": how})
        print(f"  {how:<10} {name}", flush=True)
    counts = {}
    for test in result["tests"]:
        counts[test["outcome"]] = counts.get(test["outcome"], 0) + 1
    print(f"{stage}: " + (", ".join(f"{count} {how}" for how, count in counts.items())
                          or "no tests"), flush=True)
    listed.unlink(missing_ok=True)
    (run.out / f"{stage}.tests.log").write_text(failures, encoding="utf-8")
    (run.out / f"{stage}.tests.json").write_text(json.dumps(result, indent=1), encoding="utf-8")


def digest_of(path):
    """Of the tokens that engine_bench generated and their log-probabilities, or None."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        return report["tests"][-1]["token_digest"]
    except (OSError, ValueError, LookupError):
        return None


def switches(run, name, flags, combinations, model, seconds):
    """A small model's requests with optimisations off, with each of `flags` in turn: whether those
    that ran ended well, with the same flag with the same tokens and the same bits of their
    log-probabilities. Long enough for many rows, split contexts and replayed steps. Returns the
    status of a stage."""
    print("a small model, " + " x ".join(SWITCHES))
    program, rows = run.program("engine_bench"), []
    end = run.seconds() + seconds
    for flag, off in itertools.product(flags, combinations):
        report = run.out / f"{name}-{len(rows)}.json"
        log = run.out / f"{name}-{len(rows)}.log"
        report.unlink(missing_ok=True)
        how = "not run"
        if program is not None and run.seconds() + LEAST_SECONDS <= end:
            code = execute(run, [
                program, "--backend=cuda", f"--model={model}", "--prompts=", "--decode=0",
                "--requests=9", "--request_prompt=300", "--request_output=24",
                "--request_logprobs=true", *filter(None, [flag]),
                *(f"--cuda_{switch}=false" for switch in off), f"--json={report}"],
                log, SWITCH_SECONDS, end)
            how = outcome(code, text_of(log))
        rows.append({"flag": flag, "off": list(off), "outcome": how,
                     "token_digest": digest_of(report)})
        on = "  ".join(f"{switch} {'off' if switch in off else 'on ':<3}" for switch in SWITCHES)
        print(f"  {on}  {how:<10} {rows[-1]['token_digest'] or '-'}  {flag}".rstrip(), flush=True)
        if how not in ("passed", "not run", "cut"):
            print("\n".join("    " + line for line in text_of(log).splitlines()[-3:]), flush=True)
    result = {**verdict(rows), "rows": rows}
    print(f"the same tokens with all that ran: {result['same_tokens']}", flush=True)
    (run.out / f"{name}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    return result["status"]


def verdict(rows):
    """"no" only where digests differ or something failed; no time is no verdict."""
    ran = [row for row in rows if row["outcome"] not in ("not run", "cut", "timeout")]
    digests = {}
    for row in ran:
        digests.setdefault(row["flag"], []).append(row["token_digest"])
    if (any(row["outcome"] != "passed" or row["token_digest"] is None for row in ran)
            or any(len(set(found)) > 1 for found in digests.values())):
        return {"same_tokens": "no", "status": "failed"}
    judged = any(len(found) > 1 for found in digests.values())
    timeouts = any(row["outcome"] == "timeout" for row in rows)
    return {"same_tokens": "yes" if judged else "unknown",
            "status": "timeout" if timeouts else "passed" if judged else "cut"}
