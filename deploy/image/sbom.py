"""Writes the bill of materials of the container image, as SPDX 2.3 in JSON."""

import datetime
import hashlib
import json
import os
import platform
import subprocess

PATH = "usr/share/tlm/sbom.spdx.json"


def _package_field(package, field):
    shown = f"${{{field}}}"
    return subprocess.run(
        ["dpkg-query", "-W", f"-f={shown}\n", package],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    ).stdout.splitlines()[0]


def _distribution():
    """("debian", "debian-12"), as package URLs name a distribution and its release."""
    release = platform.freedesktop_os_release()
    return release["ID"], f"{release['ID']}-{release.get('VERSION_ID', 'rolling')}"


def _toolkit_package(version):
    """NVIDIA's CUDA runtime, which is compiled into the module of the CUDA backend."""
    return {
        "SPDXID": "SPDXRef-Package-cuda-runtime",
        "name": "cuda-runtime",
        "versionInfo": version,
        "supplier": "Organization: NVIDIA Corporation",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "LIBRARY",
    }


def _file_entry(root, path):
    data = path.read_bytes()
    name = "./" + str(path.relative_to(root))
    return {
        "SPDXID": "SPDXRef-File-" + hashlib.sha256(name.encode()).hexdigest()[:16],
        "fileName": name,
        "checksums": [
            {"algorithm": "SHA1", "checksumValue": hashlib.sha1(data).hexdigest()},
            {"algorithm": "SHA256", "checksumValue": hashlib.sha256(data).hexdigest()},
        ],
        "copyrightText": "NOASSERTION",
        "licenseConcluded": "NOASSERTION",
    }


def _own_package(version):
    return {
        "SPDXID": "SPDXRef-Package-tlm",
        "name": "tlm",
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "APPLICATION",
    }


def _distribution_package(package):
    vendor, release = _distribution()
    version = _package_field(package, "Version")
    architecture = _package_field(package, "Architecture")
    # The characters of a version that a package URL wants escaped.
    escaped = version.replace("+", "%2B").replace(":", "%3A").replace("~", "%7E")
    return {
        "SPDXID": "SPDXRef-Package-" + package.replace("+", "-plus").replace("_", "-"),
        "name": package,
        "versionInfo": version,
        "supplier": "Organization: " + _package_field(package, "Maintainer").split(" <")[0],
        "sourceInfo": "built from {} {}".format(
            _package_field(package, "source:Package"), _package_field(package, "source:Version")
        ),
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "licenseComments": f"/usr/share/doc/{package}/copyright in the image",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "LIBRARY",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:deb/{vendor}/{package.replace('+', '%2B')}@{escaped}"
                f"?arch={architecture}&distro={release}",
            }
        ],
    }


def _set_files(package, entries):
    """States the files of a package; its verification code is section 7.9 of SPDX 2.3."""
    hashes = sorted(entry["checksums"][0]["checksumValue"] for entry in entries)
    code = hashlib.sha1("".join(hashes).encode()).hexdigest()
    package["filesAnalyzed"] = True
    package["packageVerificationCode"] = {"packageVerificationCodeValue": code}


def _relation(element, kind, other):
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": other}


def _created():
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    zone = datetime.timezone.utc
    time = (
        datetime.datetime.fromtimestamp(int(epoch), zone) if epoch else datetime.datetime.now(zone)
    )
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def write(root, version, own_files, files_by_package, toolkit_version=None):
    """Lists what is staged under `root`: the project's `own_files`, and per package of the
    distribution the files copied from it; none for a package that is compiled in, as the CUDA
    runtime of `toolkit_version` is where that is given."""
    own = _own_package(version)
    packages, files = [own], []
    relations = [_relation("SPDXRef-DOCUMENT", "DESCRIBES", own["SPDXID"])]

    def add_files(package, paths):
        entries = [_file_entry(root, path) for path in paths]
        if entries:
            _set_files(package, entries)
        files.extend(entries)
        for entry in entries:
            relations.append(_relation(package["SPDXID"], "CONTAINS", entry["SPDXID"]))

    add_files(own, own_files)
    for name, paths in sorted(files_by_package.items()):
        package = _distribution_package(name)
        packages.append(package)
        kind = "DYNAMIC_LINK" if paths else "STATIC_LINK"
        relations.append(_relation(own["SPDXID"], kind, package["SPDXID"]))
        add_files(package, paths)
    if toolkit_version:
        packages.append(_toolkit_package(toolkit_version))
        relations.append(_relation(own["SPDXID"], "STATIC_LINK", packages[-1]["SPDXID"]))

    content = {"packages": packages, "files": files, "relationships": relations}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"tlm-{version}",
        "documentNamespace": f"urn:tlm:sbom:{digest}",
        "creationInfo": {"created": _created(), "creators": ["Tool: tlm-image-sbom"]},
        "comment": "What the image adds to its base; the base has a list of its own.",
        **content,
    }
    target = root / PATH
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document, indent=1) + "\n")
    target.chmod(0o644)
