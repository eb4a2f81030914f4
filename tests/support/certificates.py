"""Makes certificates for tests with the openssl program."""

import datetime
import pathlib
import subprocess

CONFIG = """
[ca]
default_ca = this
[this]
database = {directory}/index
new_certs_dir = {directory}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
copy_extensions = none
[any]
organizationName = optional
organizationalUnitName = optional
commonName = supplied
[req]
distinguished_name = none
[none]
"""
CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Issued:
    """A certificate and its key: files and their contents."""

    def __init__(self, certificate, key):
        self.certificate = pathlib.Path(certificate)
        self.key = pathlib.Path(key)

    @property
    def pem(self):
        return self.certificate.read_bytes()

    @property
    def key_pem(self):
        return self.key.read_bytes()

    def serve_flags(self):
        return [f"--tls_cert={self.certificate}", f"--tls_key={self.key}"]


class Authority:
    """A certificate authority in its own directory."""

    def __init__(self, directory, name="test authority"):
        self._directory = pathlib.Path(directory)
        self._directory.mkdir()
        (self._directory / "index").touch()
        self._config = self._directory / "config"
        self._config.write_text(CONFIG.format(directory=self._directory))
        self.certificate = self._directory / "ca.pem"
        self._key = self._directory / "ca.key"
        self._issued = 0
        openssl("req", "-x509", *CURVE, "-nodes", "-keyout", self._key, "-out", self.certificate,
                "-subj", f"/CN={name}", "-days", "30")

    @property
    def pem(self):
        return self.certificate.read_bytes()

    def issue(self, subject="/CN=localhost", alternatives="DNS:localhost,IP:127.0.0.1",
              begins=-1, ends=30):
        """Issues a certificate that is valid from `begins` to `ends` days from now."""
        self._issued += 1
        stem = self._directory / f"issued{self._issued}"
        key, request, certificate = (stem.with_suffix(s) for s in (".key", ".csr", ".pem"))
        openssl("req", *CURVE, "-nodes", "-keyout", key, "-out", request, "-subj", subject,
                "-config", self._config)
        extensions = stem.with_suffix(".ext")
        extensions.write_text(f"subjectAltName={alternatives}\n" if alternatives else "")
        now = datetime.datetime.now(datetime.timezone.utc)
        dates = [(now + datetime.timedelta(days=days)).strftime("%Y%m%d%H%M%SZ")
                 for days in (begins, ends)]
        openssl("ca", "-batch", "-notext", "-config", self._config, "-in", request, "-out",
                certificate, "-cert", self.certificate, "-keyfile", self._key, "-extfile",
                extensions, "-startdate", dates[0], "-enddate", dates[1])
        return Issued(certificate, key)
