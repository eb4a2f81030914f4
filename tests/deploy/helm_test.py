"""The Helm chart: it renders what the kustomize overlays of k8s/ do, and refuses wrong values.

Rendered by `helm` where it is installed, otherwise by Helm's own Go packages from PyPI.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import k8s_test
import server_flags
import yaml
from skips import skip

try:
    import helm_python
except (ImportError, OSError):
    helm_python = None

CHART = pathlib.Path(os.environ["TLM_SOURCE_DIR"], "deploy/helm/tlm")
GPU = {"gpu": {"enabled": True}}
MESH = {"tls": {"enabled": False}, "mesh": {"enabled": True}}
OVERLAYS = {"cpu": {}, "gpu": GPU, "mesh": MESH}
# Every option differs from its default.
OTHERS = {
    "image": {"repository": "registry.example/tlm", "digest": "sha256:" + "0" * 64,
              "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "model": {"claim": "models", "subPath": "qwen", "path": "/m", "file": "q.gguf"},
    "flags": {"max_context": 8192, "prefix_cache": False, "gpu_memory_fraction": 0.5,
              "max_queued_requests": 1000000, "facades": "vllm,oip", "backend": "auto",
              "log_format": "text", "log_calls": True},
    "ports": {"data": 1, "admin": 2, "metrics": 3},
    "shutdown": {"withdrawalSeconds": 20, "drainSeconds": 300},
    "maxConnectionAge": "5m",
    "tls": {"secret": "certificate", "clientCa": True},
    "apiKeys": {"enabled": False},
    "gpu": {"enabled": True, "count": 2, "resource": "nvidia.com/mig-1g.10gb"},
    "resources": {"limits": {"memory": "1Gi"}},
    "replicas": 3,
    "autoscaling": {"enabled": False},
    "update": {"maxUnavailable": 1, "maxSurge": 0},
    "podDisruptionBudget": {"enabled": False},
    "probes": {"startupSeconds": 600, "stuckSeconds": 30},
    "networkPolicy": {"enabled": False},
    "serviceMonitor": {"enabled": False},
    "serviceAccount": {"create": False, "name": "theirs"},
    "podLabels": {"team": "search"},
    "podAnnotations": {"note": "x"},
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "pool", "operator": "Exists"}],
}
# Labels that charts have and the overlays have not.
OWN_LABELS = {"app.kubernetes.io/" + name for name in ("instance", "version", "managed-by", "part-of")}
OWN_LABELS.add("helm.sh/chart")


class Refused(Exception):
    """Helm's message about values or a template."""


def render_by_program(values, release):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values, file)
        file.flush()
        done = subprocess.run(["helm", "template", release, str(CHART), "--values", file.name],
                              text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise Refused(done.stderr)
    return [done.stdout]


def render_by_library(values, release):
    try:
        with helm_python.Chart.load(CHART) as chart:
            chart.validate_schema(values)
            manifests = chart.render(values, name=release, namespace="default")
    except helm_python.HelmError as error:
        raise Refused(str(error)) from error
    return [text for path, text in manifests.items() if path.endswith(".yaml")]


def rendered(values, release="tlm"):
    if shutil.which("helm"):
        texts = render_by_program(values, release)
    elif helm_python is not None:
        texts = render_by_library(values, release)
    else:
        skip("helm", "neither helm nor its library: the chart is not rendered")
    documents = [each for text in texts for each in yaml.safe_load_all(text) if each]
    found = k8s_test.by_kind(documents)
    assert len(found) == len(documents), "two documents have one name"
    return found


def comparable(value):
    """Without what only charts have, and without the order of flags and volumes."""
    if isinstance(value, dict):
        return {key: comparable(value[key]) for key in sorted(value) if key not in OWN_LABELS}
    if isinstance(value, list):
        items = [comparable(each) for each in value]
        named = all(isinstance(each, dict) and "name" in each for each in items)
        flags = all(isinstance(each, str) and each.startswith("--") for each in items)
        return sorted(items, key=json.dumps) if named or flags else items
    return value


class ChartTest(unittest.TestCase):
    def test_defaults_and_switches_are_the_overlays(self):
        for overlay, values in OVERLAYS.items():
            theirs = k8s_test.rendered(overlay)
            ours = rendered(values)
            self.assertEqual(set(ours), set(theirs), overlay)
            for name, document in ours.items():
                with self.subTest(overlay=overlay, document=name):
                    theirs[name]["metadata"].pop("labels", None)
                    document["metadata"].pop("labels")
                    self.assertEqual(comparable(document), comparable(theirs[name]))

    def test_documents_are_valid(self):
        for values in (*OVERLAYS.values(), OTHERS):
            for name, document in rendered(values, "release").items():
                self.assertEqual(k8s_test.validate(document), [], name)

    def test_every_value_reaches_its_place(self):
        documents = rendered(OTHERS)
        self.assertEqual({kind for kind, _ in documents}, {"Deployment", "Service"})
        deployment = documents[("Deployment", "tlm")]["spec"]
        pod = k8s_test.pod_of(documents)
        container = pod["containers"][0]
        flags = server_flags.given(container["args"])
        self.assertEqual(len(flags), len(container["args"]), "a flag is set twice")
        wanted = {"model": "/m/q.gguf", "port": "1", "admin_port": "2", "metrics_port": "3",
                  "withdrawal_grace": "20s", "drain_timeout": "300s", "max_connection_age": "5m",
                  "tls_client_ca": "/etc/tlm/tls/ca.crt", "max_context": "8192",
                  "prefix_cache": "false", "gpu_memory_fraction": "0.5", "log_calls": "true",
                  "max_queued_requests": "1000000", "facades": "vllm,oip", "backend": "auto",
                  "log_format": "text"}
        self.assertEqual({name: flags.get(name) for name in wanted}, wanted)
        self.assertNotIn("api_keys", flags)
        self.assertEqual(container["image"], "registry.example/tlm@sha256:" + "0" * 64)
        self.assertEqual(container["imagePullPolicy"], "Always")
        self.assertEqual(pod["imagePullSecrets"], OTHERS["imagePullSecrets"])
        self.assertEqual(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], "models")
        self.assertEqual(container["volumeMounts"][0],
                         {"name": "model", "mountPath": "/m", "subPath": "qwen", "readOnly": True})
        self.assertEqual(pod["volumes"][1]["secret"]["secretName"], "certificate")
        self.assertEqual([port["containerPort"] for port in container["ports"]], [1, 3])
        self.assertEqual(pod["terminationGracePeriodSeconds"], 335)
        self.assertEqual(container["resources"], OTHERS["resources"])
        self.assertEqual(deployment["replicas"], 3)
        self.assertEqual(deployment["strategy"]["rollingUpdate"], OTHERS["update"])
        self.assertEqual(deployment["progressDeadlineSeconds"], 600)
        self.assertEqual(container["startupProbe"]["failureThreshold"], 120)
        self.assertEqual(container["livenessProbe"]["failureThreshold"], 3)
        self.assertEqual(pod["serviceAccountName"], "theirs")
        metadata = deployment["template"]["metadata"]
        self.assertEqual(metadata["labels"]["team"], "search")
        self.assertEqual(metadata["annotations"], {"note": "x"})
        self.assertEqual(pod["nodeSelector"], {"pool": "gpu"})
        self.assertEqual([each["key"] for each in pod["tolerations"]],
                         ["nvidia.com/mig-1g.10gb", "pool"])
        gpu = rendered({"gpu": OTHERS["gpu"]})
        limits = k8s_test.pod_of(gpu)["containers"][0]["resources"]["limits"]
        self.assertEqual(limits["nvidia.com/mig-1g.10gb"], 2)

    def test_two_releases_share_no_name_and_select_their_own_pods(self):
        ours, theirs = rendered({}, "one"), rendered({}, "tlm-two")
        self.assertEqual(set(ours) & set(theirs), set())
        self.assertIn(("Deployment", "one-tlm"), ours)
        self.assertIn(("Deployment", "tlm-two"), theirs)
        for documents, name in ((ours, "one"), (theirs, "tlm-two")):
            for (kind, _), document in documents.items():
                spec = document.get("spec", {})
                selector = spec.get("selector") or spec.get("podSelector") or {}
                if selector:
                    labels = selector.get("matchLabels", selector)
                    self.assertEqual(labels["app.kubernetes.io/instance"], name, kind)
        longest = rendered({}, "a" * 53)
        self.assertTrue(all(len(name) <= 63 for _, name in longest))

    def test_wrong_values_are_refused_by_name(self):
        for values, words in (
            ({"replica": 2}, ["replica"]),
            ({"tls": {"enabld": True}}, ["enabld"]),
            ({"ports": {"data": 70000}}, ["/ports/data", "maximum"]),
            ({"model": {"claim": ""}}, ["claim"]),
            ({"flags": {"debug_disable": ["pinning"]}}, ["debug_disable"]),
            ({"flags": {"max-context": 1}}, ["max-context"]),
            ({"flags": {"port": 1}}, ["flags.port is set by the chart"]),
            ({"flags": {"insecure": True}}, ["flags.insecure is set by the chart"]),
            ({"tls": {"enabled": False}}, ["mesh.enabled must say that a mesh encrypts"]),
            ({"mesh": {"enabled": True}}, ["tls.enabled and mesh.enabled exclude each other"]),
        ):
            with self.subTest(values), self.assertRaises(Refused) as caught:
                rendered(values)
            for word in words:
                self.assertIn(word, str(caught.exception))

    def test_server_has_every_flag(self):
        if server_flags.defaults() is None:
            skip("helm/flags", "no built tlm-server")
        for values in (*OVERLAYS.values(), OTHERS):
            pod = k8s_test.pod_of(rendered(values))
            arguments = pod["containers"][0]["args"]
            self.assertEqual(server_flags.unknown(arguments), [])
            self.assertGreaterEqual(pod["terminationGracePeriodSeconds"],
                                    server_flags.stop_seconds(arguments))

    def test_helm_lint_is_content(self):
        if shutil.which("helm"):
            done = subprocess.run(["helm", "lint", "--strict", str(CHART)], text=True,
                                  capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
        elif helm_python is not None:
            report = helm_python.lint(CHART, {}, strict=True)
            self.assertEqual(report["errors"], [])
            self.assertEqual([each for each in report["messages"] if each["severity"] > 1], [])
        else:
            skip("helm", "neither helm nor its library")


if __name__ == "__main__":
    unittest.main(verbosity=2)
