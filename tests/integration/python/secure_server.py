"""A tlm-server with TLS or API keys, and the means to talk to it."""

import contextlib
import subprocess
import time

import grpc

from tlm_server import BIN_DIR, TlmServer  # first: it makes the stubs importable

from tlm.v1 import admin_pb2_grpc, language_model_pb2_grpc

# What changes on disk is in force after about a second.
PATIENCE_SECONDS = 30


def eventually(condition):
    """Waits until `condition` returns something true, and returns that."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        result = condition()
        if result or time.monotonic() > deadline:
            return result
        time.sleep(0.05)


def tlm_keys(*arguments):
    """Runs tlm-keys; what it prints, without the line's end."""
    done = subprocess.run([BIN_DIR / "tlm-keys", *map(str, arguments)], check=True, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    return done.stdout.strip()


def bearer(key):
    return [("authorization", f"Bearer {key}")]


def code_of(call):
    """The status code that a call ends with."""
    try:
        result = call()
        if hasattr(result, "__next__"):
            for _ in result:
                pass
        return grpc.StatusCode.OK
    except grpc.RpcError as error:
        return error.code()


class SecureServer(TlmServer):
    """TlmServer behind TLS where `ca` is given, with the Admin port open.

    `ca` is what the fixture's own channel trusts, `identity` the certificate it shows.
    """

    def __init__(self, *flags, ca=None, identity=None):
        self.ca = ca
        self.identity = identity
        self._stack = contextlib.ExitStack()
        super().__init__(*flags, ports=("admin",))

    def start(self):
        super().start()
        self.admin_target = self.target_of("admin")
        self.admin = admin_pb2_grpc.AdminStub(self.connect(target=self.admin_target))

    def close(self):
        super().close()
        self._stack.close()

    def connect(self, target=None, ca=None, identity=None, options=()):
        """A channel with a connection of its own, closed with the server."""
        target = target or self.target
        options = [("grpc.use_local_subchannel_pool", 1), *options]
        ca = ca or self.ca
        if ca is None:
            channel = grpc.insecure_channel(target, options=options)
        else:
            identity = identity or self.identity
            pair = (identity.key_pem, identity.pem) if identity else (None, None)
            channel = grpc.secure_channel(
                target, grpc.ssl_channel_credentials(ca, *pair), options=options)
        return self._stack.enter_context(channel)

    def model_of(self, **how):
        return language_model_pb2_grpc.LanguageModelStub(self.connect(**how))
