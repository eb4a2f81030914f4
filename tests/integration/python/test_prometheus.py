"""A real Prometheus scrapes the server with the configuration of deploy/, evaluates the alerts, and
answers every query of the dashboard; the runbook has an entry for every alert."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

if not (shutil.which("prometheus") and shutil.which("promtool")):
    print("skipped: prometheus and promtool (package prometheus) are needed")
    sys.exit(77)

import grpc

from observed_server import ObservedServer
from server_process import free_port
from support import request
from tlm_server import SOURCE_DIR

from tlm.v1 import score_pb2

DEPLOY = SOURCE_DIR / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "tlm.json"
RUNBOOK = DEPLOY / "runbook.md"
PATIENCE_SECONDS = 40
# Of the panels.
UNITS = {"short", "s", "reqps", "percentunit", "bytes", "watt"}


def on_all(expression):
    """A query of the dashboard with its variables at All."""
    return (expression.replace("$__rate_interval", "30s")
            .replace("$instance", ".*").replace("$model", ".*"))


def promtool(*arguments, text=None):
    result = subprocess.run(["promtool", *map(str, arguments)], input=text, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                            check=False)
    return result.returncode, result.stdout


class FilesTest(unittest.TestCase):
    def test_configuration_and_alerts_are_good(self):
        for arguments in (["check", "config", DEPLOY / "prometheus" / "prometheus.yml"],
                          ["check", "rules", ALERTS],
                          ["test", "rules", DEPLOY / "prometheus" / "alerts_test.yml"]):
            status, output = promtool(*arguments)
            self.assertEqual(status, 0, output)

    def test_every_alert_is_tested_and_in_the_runbook(self):
        alerts = re.findall(r"- alert: (\w+)", ALERTS.read_text())
        self.assertGreater(len(alerts), 10)
        self.assertEqual(len(alerts), len(set(alerts)))
        tests = (DEPLOY / "prometheus" / "alerts_test.yml").read_text()
        runbook = RUNBOOK.read_text()
        for alert in alerts:
            self.assertRegex(tests, rf"alertname: {alert}\n\s+exp_alerts:", alert)
            entry = re.search(rf"\n## {alert}\n(.*?)(?=\n## |\Z)", runbook, re.S)
            self.assertIsNotNone(entry, alert)
            for part in ("**Means**: ", "**Look at**: ", "**Do**: "):
                self.assertIn(part, entry[1], alert)
            self.assertIn(f"deploy/runbook.md#{alert.lower()}", ALERTS.read_text())

    def test_every_anchor_of_the_runbook_exists(self):
        anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
                   for heading in re.findall(r"^#+ (.*)$", RUNBOOK.read_text(), re.M)}
        named = set(re.findall(r"runbook\.md#([\w-]+)", "".join(
            path.read_text() for path in (ALERTS, SOURCE_DIR / "server/observe/README.md"))))
        self.assertEqual(named - anchors, set())

    def test_alerts_and_dashboard_name_only_metrics_that_exist(self):
        documented = set(re.findall(r"^\| `([\w:]+)`",
                                    (SOURCE_DIR / "server/observe/README.md").read_text(), re.M))
        for path in (ALERTS, DASHBOARD, RUNBOOK):
            named = set(re.findall(r"(?:vllm:|tlm_|process_)[a-z0-9_]+", path.read_text()))
            for name in named - {"tlm_cuda"}:
                base = re.sub(r"_(bucket|sum|count)$", "", name)
                self.assertTrue({name, base} & documented, f"{path.name}: {name}")


class DashboardTest(unittest.TestCase):
    def setUp(self):
        self.dashboard = json.loads(DASHBOARD.read_text())
        self.panels = self.dashboard["panels"]

    def test_panels_do_not_overlap_and_fit(self):
        taken = {}
        for panel in self.panels:
            grid = panel["gridPos"]
            self.assertLessEqual(grid["x"] + grid["w"], 24, panel["title"])
            for x in range(grid["x"], grid["x"] + grid["w"]):
                for y in range(grid["y"], grid["y"] + grid["h"]):
                    self.assertNotIn((x, y), taken, f'{panel["title"]} on {taken.get((x, y))}')
                    taken[x, y] = panel["title"]

    def test_ids_titles_and_units(self):
        ids = [panel["id"] for panel in self.panels]
        self.assertEqual(len(ids), len(set(ids)))
        for panel in self.panels:
            self.assertTrue(panel["title"])
            if panel["type"] == "row":
                continue
            self.assertIn(panel["fieldConfig"]["defaults"]["unit"], UNITS, panel["title"])
            self.assertEqual(panel["datasource"]["uid"], "${datasource}")
            refs = [target["refId"] for target in panel["targets"]]
            self.assertEqual(len(refs), len(set(refs)), panel["title"])
            self.assertTrue(all(target["legendFormat"] for target in panel["targets"]))

    def test_has_the_rows_and_variables(self):
        rows = [panel["title"] for panel in self.panels if panel["type"] == "row"]
        self.assertEqual(rows, ["Now", "Traffic", "Latency", "Engine", "KV cache", "Tenants",
                                "Errors", "Process", "GPU"])
        names = [variable["name"] for variable in self.dashboard["templating"]["list"]]
        self.assertEqual(names, ["datasource", "model", "instance"])
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(self.panels)))
        self.assertEqual(used - set(names), {"__rate_interval"})


class Prometheus:
    """A Prometheus of our own with deploy's configuration, aimed at one server."""

    def __init__(self, target):
        self._directory = tempfile.TemporaryDirectory(prefix="tlm-test-")
        directory = pathlib.Path(self._directory.name)
        text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
        self.base = f"http://127.0.0.1:{free_port()}"
        for old, new in (("tlm:9464", target), ("localhost:9090", self.base.split("//")[1]),
                         ("scrape_interval: 5s", "scrape_interval: 1s"),
                         ("evaluation_interval: 15s", "evaluation_interval: 1s")):
            if old not in text:
                raise AssertionError(f"prometheus.yml has no {old}")
            text = text.replace(old, new)
        (directory / "prometheus.yml").write_text(text)
        shutil.copy(ALERTS, directory)
        self._log = open(directory / "log", "w+", encoding="utf-8")
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={directory}/prometheus.yml",
             f"--storage.tsdb.path={directory}/data",
             f"--web.listen-address={self.base.split('//')[1]}"],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)

    def close(self):
        self._process.terminate()
        self._process.wait(30)
        self._log.close()
        self._directory.cleanup()

    def ask(self, path, **parameters):
        url = f"{self.base}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)["data"]

    def value(self, query):
        """The one value of an instant query; None without any."""
        result = self.ask("query", query=query)["result"]
        return float(result[0]["value"][1]) if result else None

    def wait_until(self, query, expected):
        deadline = time.monotonic() + PATIENCE_SECONDS
        found = None
        while time.monotonic() < deadline:
            try:
                found = self.value(query)
            except OSError:
                found = None  # it is starting
            if found == expected:
                return
            time.sleep(0.1)
        raise AssertionError(f"{query} is {found}, not {expected}")


class ScrapeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(ObservedServer())
        cls.prometheus = Prometheus(f"127.0.0.1:{cls.server.metrics_port}")
        cls.addClassCleanup(cls.prometheus.close)
        cls.prometheus.wait_until('up{job="tlm"}', 1)
        cls.make_traffic()
        settled = cls.server.settled()
        cls.admitted = settled.sum("tlm_requests_admitted_total")
        cls.prometheus.wait_until("sum(tlm_requests_admitted_total)", cls.admitted)

    @classmethod
    def make_traffic(cls):
        """Something of everything, for long enough that rates exist."""
        model, until = cls.server.model, time.monotonic() + 6
        while time.monotonic() < until:
            list(model.Generate(request("Once upon a time " * 20, max_new_tokens=40)))
            model.Score(score_pb2.ScoreRequest(
                prompt="Once", continuations=[score_pb2.Continuation(text=" upon")]))
            call = model.Generate(request(max_new_tokens=900))
            next(call)
            call.cancel()
            for bad in (request(temperature=-1), call):
                try:
                    list(model.Generate(bad) if bad is not call else call)
                except grpc.RpcError:
                    pass

    def test_the_exposition_has_no_faults(self):
        status, output = promtool("check", "metrics", text=self.server.samples().text)
        # vLLM's names, of whose colons and endings promtool disapproves, are what they are.
        ours = [line for line in output.splitlines() if not line.startswith("vllm:")]
        self.assertEqual(ours, [], status)

    def test_prometheus_knows_what_the_server_said(self):
        samples = self.server.samples()
        for name in ("vllm:generation_tokens_total", "tlm_requests_ended_total",
                     "tlm_requests_refused_total", "vllm:time_to_first_token_seconds_count",
                     "vllm:prefix_cache_hits_total"):
            self.assertGreater(samples.sum(name), 0, name)
            self.assertEqual(self.prometheus.value(f"sum({name})"), samples.sum(name), name)
        self.assertEqual(self.prometheus.value(
            "sum(tlm_requests_admitted_total) - sum(tlm_requests_ended_total) "
            "- sum(tlm_requests_in_flight)"), 0)

    def test_no_series_was_dropped(self):
        self.assertEqual(self.prometheus.value(
            'scrape_samples_scraped{job="tlm"} - scrape_samples_post_metric_relabeling{job="tlm"}'),
            0)

    def test_the_rules_are_loaded_and_nothing_fires(self):
        rules = self.prometheus.ask("rules")["groups"][0]["rules"]
        self.assertEqual(len(rules), len(re.findall("- alert:", ALERTS.read_text())))
        for rule in rules:
            self.assertEqual(rule["health"], "ok", rule)
            self.assertNotEqual(rule["state"], "firing", rule["name"])

    def test_every_query_of_the_dashboard_has_data(self):
        for panel in json.loads(DASHBOARD.read_text())["panels"]:
            for target in panel.get("targets", []):
                query = on_all(target["expr"])
                if "tlm_gpu_" in query:  # this server computes on a CPU
                    self.assertIsNone(self.prometheus.value(query), query)
                    continue
                self.assertIsNotNone(self.prometheus.value(query), f'{panel["title"]}: {query}')

    def test_the_median_inter_token_latency_is_no_artefact_of_the_buckets(self):
        panel = next(panel for panel in json.loads(DASHBOARD.read_text())["panels"]
                     if panel["title"] == "Inter-token latency")
        values = {target["legendFormat"]: self.prometheus.value(on_all(target["expr"]))
                  for target in panel["targets"]}
        # At most half of the values exceed twice their mean; a bucket ends at most at 1.67 times
        # its beginning.
        self.assertLess(values["p50"], 2 * 1.67 * values["mean"])

    def test_the_picture_of_the_dashboard(self):
        with tempfile.TemporaryDirectory(prefix="tlm-test-") as directory:
            page = pathlib.Path(directory) / "page.html"
            result = subprocess.run(
                [sys.executable, DEPLOY / "grafana" / "render.py", "--minutes=0.3",
                 f"--prometheus={self.prometheus.base}", f"--out={page}"],
                text=True, stderr=subprocess.PIPE, timeout=60, check=False)
            text = page.read_text()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(text, r"demo on [^<]+ · \d{4}-\d\d-\d\d \d\d:\d\d to \d\d:\d\d UTC")
        for name, color in (("used", "#ff9830"), ("cached", "#5794f2"), ("free", "#73bf69")):
            self.assertIn(f'background:{color}"></i>{name} ', text)

    def test_the_variables_of_the_dashboard_have_values(self):
        self.assertEqual(self.prometheus.ask("label/model_name/values"), ["demo"])
        self.assertIn(f"127.0.0.1:{self.server.metrics_port}",
                      self.prometheus.ask("label/instance/values"))
