"""A tlm-server with everything on that it can do: TLS, API keys, an admin port, metrics."""

import pathlib
import re
import subprocess
import tempfile
import urllib.request

import grpc

from tlm_server import BIN_DIR, TlmServer

from tlm.v1 import admin_pb2_grpc

# A connection of its own for every channel, whatever others there are.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
# One that takes little that nobody reads.
NARROW = OWN_CONNECTION + [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024)]


def known_flags():
    """The names of the flags that this tlm-server knows."""
    result = subprocess.run([BIN_DIR / "tlm-server", "--help"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=60, check=False)
    return set(re.findall(r"--(\w+)", result.stdout))


class SoakServer(TlmServer):
    """Use as a context manager. `secure` asks for TLS and API keys, on both ports."""

    def __init__(self, *flags, secure):
        self._files = tempfile.TemporaryDirectory(prefix="tlm-soak-")
        self._directory = pathlib.Path(self._files.name)
        self._admin_port_file = self._directory / "admin_port"
        self._metrics_port_file = self._directory / "metrics_port"
        self._roots = None
        self._keys = {}
        known = known_flags()
        own = ["--admin_port=0", f"--admin_port_file={self._admin_port_file}"]
        self.has_metrics = "metrics_port" in known
        if self.has_metrics:
            own += ["--metrics_port=0", f"--metrics_port_file={self._metrics_port_file}"]
        if "withdrawal_grace" in known:
            own.append("--withdrawal_grace=0s")
        if secure:
            own += self._secure()
        self.secure = secure
        super().__init__(*own, *flags)

    def __enter__(self):
        super().__enter__()
        target = f"127.0.0.1:{self._admin_port_file.read_text().strip()}"
        self._admin_channel = self._connect(target, "admin", OWN_CONNECTION)
        self.admin = admin_pb2_grpc.AdminStub(self._admin_channel)
        if self.has_metrics:
            port = self._metrics_port_file.read_text().strip()
            self._metrics_url = f"http://127.0.0.1:{port}/metrics"
        return self

    def close(self):
        if hasattr(self, "_admin_channel"):
            self._admin_channel.close()
        super().close()
        self._files.cleanup()

    def connect(self, options=None, key="inference"):
        """A channel with a connection of its own; `key` names a role, or is a key itself."""
        return self._connect(self.target, key, options or OWN_CONNECTION)

    def metrics(self):
        """The values of /metrics by name with labels."""
        with urllib.request.urlopen(self._metrics_url, timeout=30) as response:
            text = response.read().decode()
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in lines}

    def _connect(self, target, key, options):
        if not self.secure:
            return grpc.insecure_channel(target, options=options)
        credentials = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(self._roots),
            grpc.access_token_call_credentials(self._keys.get(key, key)))
        return grpc.secure_channel(target.replace("127.0.0.1", "localhost"), credentials,
                                   options=options)

    def _secure(self):
        """Makes a certificate and keys; the flags that name them."""
        certificate, key = self._directory / "cert.pem", self._directory / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", key, "-out", certificate],
                       check=True, capture_output=True, timeout=60)
        self._roots = certificate.read_bytes()
        keys_file = self._directory / "keys.json"
        for role in ("inference", "admin"):
            self._keys[role] = subprocess.run(
                [BIN_DIR / "tlm-keys", "add", f"--file={keys_file}", "--tenant=soak",
                 f"--role={role}"],
                check=True, capture_output=True, text=True, timeout=60).stdout.strip()
        # Its traffic asks for priorities.
        subprocess.run([BIN_DIR / "tlm-keys", "limits", f"--file={keys_file}", "--tenant=soak",
                        "--max_priority=none"], check=True, timeout=60)
        return [f"--tls_cert={certificate}", f"--tls_key={key}", f"--api_keys={keys_file}"]


def can_be_secure():
    """Whether this build has TLS and API keys."""
    return (BIN_DIR / "tlm-keys").exists() and "tls_cert" in known_flags()
