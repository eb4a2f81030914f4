"""A tlm-server with everything on that it can do: TLS, API keys, an admin port, metrics."""

import pathlib
import subprocess
import tempfile
import urllib.request

import grpc

from certificates import Authority
from tlm_server import BIN_DIR, TlmServer

from tlm.v1 import admin_pb2_grpc

# A connection of its own for every channel, whatever others there are.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
# One that buffers little unread data.
NARROW = OWN_CONNECTION + [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024)]


class SoakServer(TlmServer):
    """Use as a context manager. `secure` asks for TLS and API keys, on both ports."""

    def __init__(self, *flags, secure):
        self._files = tempfile.TemporaryDirectory(prefix="tlm-soak-")
        self._directory = pathlib.Path(self._files.name)
        self._roots = None
        self._keys = {}
        own = self._secure() if secure else []
        self.secure = secure
        super().__init__(*own, *flags, ports=("admin", "metrics"))

    def start(self):
        super().start()
        self._admin_channel = self._connect(self.target_of("admin"), "admin", OWN_CONNECTION)
        self.admin = admin_pb2_grpc.AdminStub(self._admin_channel)
        self._metrics_url = f"http://{self.target_of('metrics')}/metrics"

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
        authority = Authority(self._directory / "ca")
        self._roots = authority.pem
        keys_file = self._directory / "keys.json"
        for role in ("inference", "admin"):
            self._keys[role] = subprocess.run(
                [BIN_DIR / "tlm-keys", "add", f"--file={keys_file}", "--tenant=soak",
                 f"--role={role}"],
                check=True, capture_output=True, text=True, timeout=60).stdout.strip()
        # Its traffic asks for priorities.
        subprocess.run([BIN_DIR / "tlm-keys", "limits", f"--file={keys_file}", "--tenant=soak",
                        "--max_priority=none"], check=True, timeout=60)
        return [*authority.issue().serve_flags(), f"--api_keys={keys_file}"]
