"""Certificates for tests, made with openssl."""

import pathlib
import subprocess

import grpc


class Certificates:
    """PEM files in a folder: an authority, and what it signed for the server `model.test` and for
    a client. An authority of strangers too."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        for authority in ("ca", "strangers"):
            self._openssl("req", "-x509", *self._new_key(authority), "-subj", f"/CN={authority}",
                          "-days", "2", "-out", self.path(authority))
        self._sign("server", "/CN=model.test", "subjectAltName=DNS:model.test,DNS:localhost")
        self._sign("client", "/CN=team-blue", "subjectAltName=DNS:client.test")

    def path(self, name):
        return str(self.folder / f"{name}.pem")

    def key(self, name):
        return str(self.folder / f"{name}.key")

    def server_credentials(self, ask_client):
        """For a gRPC server in Python."""
        key, certificate, authority = (pathlib.Path(path).read_bytes() for path in (
            self.key("server"), self.path("server"), self.path("ca")))
        return grpc.ssl_server_credentials([(key, certificate)],
                                           authority if ask_client else None, ask_client)

    def _sign(self, name, subject, extension):
        request = self.folder / f"{name}.csr"
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(extension, encoding="utf-8")
        self._openssl("req", *self._new_key(name), "-subj", subject, "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.path("ca"), "-CAkey",
                      self.key("ca"), "-CAcreateserial", "-days", "2", "-extfile", extensions,
                      "-out", self.path(name))

    def _new_key(self, name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                self.key(name))

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
