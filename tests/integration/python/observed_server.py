"""A server with a metrics port, and what it answers there taken apart."""

import re
import time
import urllib.request

from test_admin import AdminServer

PATIENCE_SECONDS = 30
SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Samples:
    """The samples of one reading."""

    def __init__(self, text):
        self.text = text
        self.series = []  # (name, labels, value)
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, labels, value = SAMPLE.fullmatch(line).groups()
                self.series.append((name, dict(LABEL.findall(labels or "")), float(value)))

    def sum(self, name, **labels):
        """The sum of the samples of this name that have these labels."""
        return sum(value for _, _, value in self.of(name, **labels))

    def of(self, name, **labels):
        return [entry for entry in self.series
                if entry[0] == name and labels.items() <= entry[1].items()]


class ObservedServer(AdminServer):
    """A server with an admin port and a metrics port."""

    def __init__(self, *flags, **options):
        super().__init__(*flags, ports=("admin", "metrics"), **options)

    @property
    def metrics_port(self):
        return self.port_of("metrics")

    def samples(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics",
                                    timeout=10) as response:
            return Samples(response.read().decode())

    def samples_where(self, condition):
        """The first reading of which `condition` holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            samples = self.samples()
            if condition(samples):
                return samples
            if time.monotonic() > deadline:
                raise AssertionError(f"not as expected in {PATIENCE_SECONDS} s:\n{samples.text}")

    def settled(self):
        """A reading with no call in flight and nothing in the engine."""
        return self.samples_where(
            lambda s: s.sum("tlm_requests_in_flight") == 0 and
            s.sum("vllm:num_requests_running") == 0 and s.sum("vllm:num_requests_waiting") == 0)
