"""The Kubernetes manifests: valid by the published schemas, hardened, and one with another.

Overlays are rendered by kubectl or kustomize. Where neither is there, what is asked of rendered
manifests is skipped, and the base's files are looked at one by one.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import jsonschema
import kubernetes_validate
import server_flags
import yaml
from skips import skip

HERE = pathlib.Path(__file__).resolve().parent
K8S = pathlib.Path(os.environ["TLM_SOURCE_DIR"], "deploy/k8s")
OVERLAYS = ("cpu", "gpu", "mesh")
# The oldest that has all we use, and the newest there are schemas of.
VERSIONS = ("1.27", "1.37")
# Where Linkerd's proxies take the calls of other meshed pods, whatever port those are for.
MESH_PORT = 4143


def render_command(folder):
    if shutil.which("kustomize"):
        return ["kustomize", "build", str(folder)]
    if shutil.which("kubectl"):
        return ["kubectl", "kustomize", str(folder)]
    return None


def by_kind(documents):
    """Documents by (kind, name)."""
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def rendered(overlay):
    return rendered_folder(K8S / "overlays" / overlay)


def rendered_with(component):
    """An overlay of plain text and this component."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: os.path.relpath(K8S / name, os.path.realpath(folder))
                 for name in ("base", "components/plaintext", f"components/{component}")}
        pathlib.Path(folder, "kustomization.yaml").write_text(
            yaml.safe_dump({"resources": [paths.pop("base")], "components": [*paths.values()]}))
        return rendered_folder(pathlib.Path(folder))


def rendered_folder(folder):
    command = render_command(folder)
    if command is None:
        skip(f"k8s/{folder.name}", "neither kustomize nor kubectl: overlays are not rendered")
    text = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    return by_kind(yaml.safe_load_all(text))


def base_files():
    listed = yaml.safe_load((K8S / "base/kustomization.yaml").read_text())["resources"]
    return by_kind(yaml.safe_load((K8S / "base" / name).read_text()) for name in listed)


def validate(document):
    """What the published schemas of each version say against `document`."""
    custom = HERE / f"{document['kind'].lower()}.schema.json"
    if custom.exists():
        schema = json.loads(custom.read_text())
        return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(document)]
    errors = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            errors.append(f"{version}: {error}")
    return errors


def pod_of(documents):
    return documents[("Deployment", "tlm")]["spec"]["template"]["spec"]


class SchemaTest(unittest.TestCase):
    def test_base_files_are_valid_one_by_one(self):
        for name, document in base_files().items():
            self.assertEqual(validate(document), [], name)

    def test_rendered_overlays_are_valid(self):
        for overlay in OVERLAYS:
            for name, document in rendered(overlay).items():
                self.assertEqual(validate(document), [], (overlay, name))

    def test_schemas_refuse_a_misspelt_field(self):
        document = base_files()[("Deployment", "tlm")]
        document["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
        self.assertNotEqual(validate(document), [])
        document = base_files()[("ServiceMonitor", "tlm")]
        document["spec"]["endpoints"][0]["portName"] = "metrics"
        self.assertNotEqual(validate(document), [])


class WholeTest(unittest.TestCase):
    """Names that must be the same in two places; asked of the base, and of every overlay."""

    def everything(self):
        yield "base", base_files()
        for overlay in OVERLAYS if render_command(K8S) else ():
            yield overlay, rendered(overlay)

    def test_services_name_ports_of_the_container(self):
        for where, documents in self.everything():
            ports = {port["name"]: port["containerPort"]
                     for port in pod_of(documents)["containers"][0]["ports"]}
            for name in ("tlm", "tlm-headless"):
                for port in documents[("Service", name)]["spec"]["ports"]:
                    self.assertIn(port["targetPort"], ports, (where, name))
            allowed = [port["port"]
                       for rule in documents[("NetworkPolicy", "tlm")]["spec"]["ingress"]
                       for port in rule["ports"] if where != "mesh" or port["port"] != MESH_PORT]
            self.assertEqual(sorted(allowed), sorted(ports.values()), where)

    def test_flags_name_the_container_ports(self):
        for where, documents in self.everything():
            container = pod_of(documents)["containers"][0]
            ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
            flags = server_flags.given(container["args"])
            self.assertEqual(
                (flags["port"], flags["metrics_port"]), (ports["grpc"], ports["metrics"]), where)

    def test_monitor_selects_the_headless_service(self):
        for where, documents in self.everything():
            wanted = documents[("ServiceMonitor", "tlm")]["spec"]["selector"]["matchLabels"]
            labels = documents[("Service", "tlm-headless")]["metadata"]["labels"]
            self.assertLessEqual(wanted.items(), labels.items(), where)
            self.assertNotIn(
                "tlm/scrape", documents[("Service", "tlm")]["metadata"].get("labels", {}))

    def test_mounts_have_volumes(self):
        for where, documents in self.everything():
            pod = pod_of(documents)
            volumes = {volume["name"] for volume in pod["volumes"]}
            mounts = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
            self.assertEqual(volumes, mounts, where)

    def test_autoscaler_asks_for_the_adapters_metric(self):
        rules = yaml.safe_load((K8S / "prometheus-adapter-rules.yaml").read_text())["rules"][
            "custom"]
        for where, documents in self.everything():
            metric = documents[("HorizontalPodAutoscaler", "tlm")]["spec"]["metrics"][0]["pods"][
                "metric"]
            self.assertEqual(metric["name"], rules[0]["name"]["as"], where)

    def test_server_has_every_flag(self):
        if server_flags.defaults() is None:
            skip("k8s/flags", "no built tlm-server")
        for where, documents in self.everything():
            arguments = pod_of(documents)["containers"][0]["args"]
            self.assertEqual(server_flags.unknown(arguments), [], where)

    def test_termination_covers_withdrawal_and_drain(self):
        if server_flags.defaults() is None:
            skip("k8s/flags", "no built tlm-server")
        for where, documents in self.everything():
            pod = pod_of(documents)
            self.assertGreaterEqual(pod["terminationGracePeriodSeconds"],
                                    server_flags.stop_seconds(pod["containers"][0]["args"]), where)


class FleetTest(unittest.TestCase):
    """The components keda and llm-d, each with the base."""

    def test_components_are_valid(self):
        for component in ("keda", "llm-d"):
            for name, document in rendered_with(component).items():
                self.assertEqual(validate(document), [], (component, name))

    def test_schemas_refuse_a_misspelt_field(self):
        for component, kind, path in (("keda", "ScaledObject", ("triggers", 0, "metadata")),
                                      ("llm-d", "InferencePool", ("endpointPickerRef",)),
                                      ("llm-d", "HTTPRoute", ("rules", 0))):
            document = rendered_with(component)[(kind, "tlm")]
            place = document["spec"]
            for step in path:
                place = place[step]
            place["thresholds"] = "4"
            self.assertNotEqual(validate(document), [], kind)

    def test_keda_replaces_the_autoscaler_and_scales_as_it_does(self):
        documents = rendered_with("keda")
        self.assertNotIn(("HorizontalPodAutoscaler", "tlm"), documents)
        theirs = base_files()[("HorizontalPodAutoscaler", "tlm")]["spec"]
        ours = documents[("ScaledObject", "tlm")]["spec"]
        self.assertEqual((ours["minReplicaCount"], ours["maxReplicaCount"], ours["scaleTargetRef"]),
                         (theirs["minReplicas"], theirs["maxReplicas"], theirs["scaleTargetRef"]))
        self.assertEqual(
            ours["advanced"]["horizontalPodAutoscalerConfig"]["behavior"], theirs["behavior"])
        trigger, metric = ours["triggers"][0]["metadata"], theirs["metrics"][0]["pods"]
        self.assertEqual(trigger["threshold"], metric["target"]["averageValue"])
        self.assertIn(metric["metric"]["name"].replace("vllm_", "vllm:"), trigger["query"])
        self.assertIn(("Service", "tlm-headless"), documents)

    def test_the_picker_finds_replicas_and_is_found(self):
        documents = rendered_with("llm-d")
        container = pod_of(documents)["containers"][0]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        pool = documents[("InferencePool", "tlm")]["spec"]
        labels = documents[("Deployment", "tlm")]["spec"]["template"]["metadata"]["labels"]
        self.assertLessEqual(pool["selector"]["matchLabels"].items(), labels.items())
        self.assertEqual(pool["targetPorts"], [{"number": ports["grpc"]}])
        service = documents[("Service", pool["endpointPickerRef"]["name"])]["spec"]
        self.assertEqual(pool["endpointPickerRef"]["port"]["number"], service["ports"][0]["port"])
        picker = documents[("Deployment", "tlm-endpoint-picker")]["spec"]["template"]
        self.assertEqual(service["selector"], picker["metadata"]["labels"])
        arguments = server_flags.given(picker["spec"]["containers"][0]["args"])
        self.assertEqual(arguments["model-server-metrics-port"], str(ports["metrics"]))
        self.assertEqual(arguments["pool-name"], "tlm")
        # The policy lets it scrape.
        self.assertIn(
            ([picker["metadata"]["labels"]], [ports["metrics"]]),
            [
                (
                    [source["podSelector"]["matchLabels"] for source in rule["from"]
                     if "podSelector" in source],
                    [port["port"] for port in rule["ports"] if port["port"] != MESH_PORT],
                )
                for rule in documents[("NetworkPolicy", "tlm")]["spec"]["ingress"]
            ],
        )
        self.assertIn("--facades=vllm", container["args"])
        config = yaml.safe_load(documents[("ConfigMap", "tlm-endpoint-picker")]["data"]
                                ["plugins.yaml"])
        plugins = {plugin["type"] for plugin in config["plugins"]}
        for profile in config["schedulingProfiles"]:
            self.assertLessEqual({each["pluginRef"] for each in profile["plugins"]}, plugins)
        self.assertEqual(config["parser"]["pluginRef"], "vllmgrpc-parser")

    def test_their_servers_have_every_flag(self):
        if server_flags.defaults() is None:
            skip("k8s/flags", "no built tlm-server")
        for component in ("keda", "llm-d"):
            arguments = pod_of(rendered_with(component))["containers"][0]["args"]
            self.assertEqual(server_flags.unknown(arguments), [], component)


class HardeningTest(unittest.TestCase):
    def check_pod(self, pod):
        self.assertIs(pod["automountServiceAccountToken"], False)
        self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
        self.assertGreater(pod["securityContext"]["runAsUser"], 0)
        self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
        for container in pod["containers"]:
            context = container["securityContext"]
            self.assertIs(context["allowPrivilegeEscalation"], False)
            self.assertIs(context["readOnlyRootFilesystem"], True)
            self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
            for mount in container["volumeMounts"]:
                self.assertTrue(
                    mount.get("readOnly") or mount["mountPath"].startswith("/var/cache/"))

    def test_base_pod(self):
        documents = base_files()
        self.check_pod(pod_of(documents))
        self.assertIs(documents[("ServiceAccount", "tlm")]["automountServiceAccountToken"], False)

    def test_rendered_pods(self):
        for overlay in OVERLAYS:
            self.check_pod(pod_of(rendered(overlay)))

    def test_base_alone_does_not_choose_plain_text(self):
        flags = server_flags.given(pod_of(base_files())["containers"][0]["args"])
        self.assertNotIn("insecure", flags)

    def test_overlays_ask_for_keys_and_encrypt_or_stand_behind_a_mesh(self):
        for overlay in OVERLAYS:
            flags = server_flags.given(pod_of(rendered(overlay))["containers"][0]["args"])
            self.assertIn("api_keys", flags, overlay)
            self.assertEqual("tls_cert" in flags, overlay != "mesh")
            self.assertEqual("insecure" in flags, overlay == "mesh")

    def test_nothing_goes_out_but_what_a_mesh_sends(self):
        policies = {"base": base_files()[("NetworkPolicy", "tlm")]["spec"]}
        for overlay in OVERLAYS if render_command(K8S) else ():
            policies[overlay] = rendered(overlay)[("NetworkPolicy", "tlm")]["spec"]
        for where, policy in policies.items():
            if where == "mesh":  # its proxies have DNS and a control plane to reach
                self.assertEqual(policy["policyTypes"], ["Ingress"])
                self.assertNotIn("egress", policy)
            else:
                self.assertEqual(policy["policyTypes"], ["Ingress", "Egress"], where)
                self.assertEqual(policy["egress"], [], where)
            # A rule without `from` would admit every source.
            self.assertTrue(all(rule["from"] for rule in policy["ingress"]), where)
            for rule in policy["ingress"]:
                ports = [port["port"] for port in rule["ports"]]
                self.assertEqual(MESH_PORT in ports, where == "mesh", where)

    def test_updates_take_no_replica_away_first(self):
        update = base_files()[("Deployment", "tlm")]["spec"]["strategy"]["rollingUpdate"]
        self.assertEqual((update["maxUnavailable"], update["maxSurge"]), (0, 1))


class ProbesTest(unittest.TestCase):
    PROBES = ("startupProbe", "readinessProbe", "livenessProbe")

    def test_plain_text_is_probed_by_grpc(self):
        container = pod_of(rendered("mesh"))["containers"][0]
        for probe in self.PROBES:
            self.assertEqual(container[probe]["grpc"]["port"], 50051, probe)

    # Kubernetes' gRPC probes speak no TLS.
    def test_tls_is_probed_by_http(self):
        for overlay in ("cpu", "gpu"):
            container = pod_of(rendered(overlay))["containers"][0]
            for probe in self.PROBES:
                self.assertNotIn("grpc", container[probe], (overlay, probe))
                self.assertEqual(container[probe]["httpGet"]["port"], "metrics", (overlay, probe))

    def test_gpu_overlay_asks_for_a_gpu(self):
        container = pod_of(rendered("gpu"))["containers"][0]
        self.assertEqual(container["resources"]["limits"]["nvidia.com/gpu"], 1)
        self.assertIn("--backend=cuda", container["args"])
        self.assertNotIn(
            "nvidia.com/gpu", pod_of(rendered("cpu"))["containers"][0]["resources"]["limits"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
