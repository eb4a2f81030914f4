"""What a process holds over time, and whether that stays flat."""

import dataclasses
import os
import pathlib
import statistics

MEMORY_TOLERANCE = 0.02
THREAD_TOLERANCE = 4  # gRPC starts and ends threads of its own with the load


@dataclasses.dataclass
class Sample:
    """Of one process at one time."""
    seconds: float  # since the beginning
    rss_kib: int
    anonymous_kib: int  # of these, what is not pages of files
    descriptors: int
    threads: int


def take(pid, seconds):
    """The sample of a process that runs."""
    status = dict(line.split(":", 1) for line in
                  pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)

    def number(name):
        return int(status[name].split()[0])
    return Sample(seconds, number("VmRSS"), number("RssAnon"),
                  len(os.listdir(f"/proc/{pid}/fd")), number("Threads"))


def fifths(samples):
    """The samples of the second and of the last fifth of the time that they span. The first fifth
    is warm-up: caches fill, pools reach their size."""
    begin, end = samples[0].seconds, samples[-1].seconds
    span = (end - begin) / 5
    second = [s for s in samples if begin + span <= s.seconds < begin + 2 * span]
    last = [s for s in samples if s.seconds >= end - span]
    return second, last


def median(samples, field):
    return statistics.median(getattr(sample, field) for sample in samples)


def growth(samples, field="rss_kib"):
    """How much larger the median of the last fifth is than that of the second: 0.01 is 1 %."""
    second, last = fifths(samples)
    return median(last, field) / median(second, field) - 1


def faults(samples):
    """What is not flat, in words; empty: all is. At least ten samples."""
    found = []
    grown = growth(samples)
    if grown > MEMORY_TOLERANCE:
        found.append(f"resident memory grew by {grown:.2%}, at most {MEMORY_TOLERANCE:.0%} is flat")
    second, last = fifths(samples)
    more_threads = median(last, "threads") - median(second, "threads")
    if more_threads > THREAD_TOLERANCE:
        found.append(f"{more_threads:.0f} more threads, at most {THREAD_TOLERANCE} are flat")
    return found


def describe(samples):
    """One line a fifth: medians, and the most descriptors."""
    begin, end = samples[0].seconds, samples[-1].seconds
    lines = []
    for i in range(5):
        low = begin + (end - begin) * i / 5
        high = begin + (end - begin) * (i + 1) / 5
        part = [s for s in samples if low <= s.seconds <= high]
        if part:
            lines.append(f"  {low / 60:5.1f} to {high / 60:5.1f} min: "
                         f"rss {median(part, 'rss_kib') / 1024:7.2f} MiB, "
                         f"anonymous {median(part, 'anonymous_kib') / 1024:7.2f} MiB, "
                         f"threads {median(part, 'threads'):.0f}, "
                         f"descriptors at most {max(s.descriptors for s in part)}")
    return "\n".join(lines)
