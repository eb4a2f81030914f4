"""The compose files: valid by the published schema, true of what they mount, closed to others."""

import importlib.resources
import json
import os
import pathlib
import unittest

import jsonschema
import server_flags
import yaml
from skips import skip

DEPLOY = pathlib.Path(os.environ["TLM_SOURCE_DIR"], "deploy")
FILES = sorted(DEPLOY.glob("compose*.yaml"))


class _Loader(yaml.SafeLoader):
    """Knows the tag that makes a list replace that of the file before, instead of joining it."""


_Loader.add_constructor(
    "!override", lambda loader, node: loader.construct_sequence(node, deep=True))


def load(path):
    return yaml.load(path.read_text(), _Loader)


def schema():
    package = importlib.resources.files("check_jsonschema")
    return json.loads((package / "builtin_schemas/vendor/compose-spec.json").read_text())


class ComposeTest(unittest.TestCase):
    def test_files_are_valid_by_the_published_schema(self):
        self.assertGreaterEqual(len(FILES), 3)
        validator = jsonschema.validators.validator_for(schema())(schema())
        for file in FILES:
            errors = [f"{e.json_path}: {e.message}" for e in validator.iter_errors(load(file))]
            self.assertEqual(errors, [], file.name)

    def test_schema_refuses_a_key_it_does_not_know(self):
        document = load(DEPLOY / "compose.yaml")
        document["services"]["tlm"]["readonly"] = True
        validator = jsonschema.validators.validator_for(schema())(schema())
        self.assertFalse(validator.is_valid(document))

    def test_server_has_every_flag(self):
        if server_flags.defaults() is None:
            skip("compose/flags", "no built tlm-server")
        for file in FILES:
            command = load(file)["services"]["tlm"].get("command", [])
            self.assertEqual(server_flags.unknown(command), [], file.name)

    def test_stop_period_covers_the_drain(self):
        if server_flags.defaults() is None:
            skip("compose/flags", "no built tlm-server")
        period = server_flags.seconds(
            load(DEPLOY / "compose.yaml")["services"]["tlm"]["stop_grace_period"])
        for file in FILES:
            command = load(file)["services"]["tlm"].get("command")
            if command:
                self.assertGreaterEqual(period, server_flags.stop_seconds(command), file.name)

    def test_every_service_is_read_only_without_capabilities(self):
        for name, service in load(DEPLOY / "compose.yaml")["services"].items():
            self.assertTrue(service["read_only"], name)
            self.assertEqual(service["cap_drop"], ["ALL"], name)
            self.assertIn("no-new-privileges:true", service["security_opt"], name)

    def test_plain_text_is_published_on_loopback_alone(self):
        for name, service in load(DEPLOY / "compose.yaml")["services"].items():
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), f"{name} {port}")
        command = load(DEPLOY / "compose.tls.yaml")["services"]["tlm"]["command"]
        self.assertNotIn("--insecure", command)
        self.assertIn("tls_cert", server_flags.given(command))
        self.assertIn("api_keys", server_flags.given(command))

    def test_mounted_files_are_there(self):
        mounted = 0
        for service in load(DEPLOY / "compose.yaml")["services"].values():
            for volume in service.get("volumes", []):
                source = volume.split(":")[0] if isinstance(volume, str) else "../model/demo"
                if source.startswith("."):
                    mounted += 1
                    self.assertTrue((DEPLOY / source).is_dir(), source)
        self.assertEqual(mounted, 4)

    def test_prometheus_scrapes_the_service(self):
        scraped = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())[
            "scrape_configs"]
        targets = [target for job in scraped for config in job.get("static_configs", [])
                   for target in config["targets"]]
        port = server_flags.given(load(DEPLOY / "compose.yaml")["services"]["tlm"]["command"])[
            "metrics_port"]
        self.assertIn(f"tlm:{port}", targets)

    def test_grafana_finds_prometheus_and_the_dashboard(self):
        service = load(DEPLOY / "compose.yaml")["services"]["grafana"]
        sources = yaml.safe_load(
            next((DEPLOY / "grafana/provisioning/datasources").glob("*.y*ml")).read_text())
        self.assertEqual(sources["datasources"][0]["url"], "http://prometheus:9090")
        providers = yaml.safe_load(
            next((DEPLOY / "grafana/provisioning/dashboards").glob("*.y*ml")).read_text())
        folder = providers["providers"][0]["options"]["path"]
        self.assertIn(f"./grafana/dashboards:{folder}:ro", service["volumes"])
        home = pathlib.PurePosixPath(
            service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
        self.assertEqual(str(home.parent), folder)
        self.assertTrue((DEPLOY / "grafana/dashboards" / home.name).is_file())


if __name__ == "__main__":
    unittest.main(verbosity=2)
