#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sbom.py VERSION CHART.tgz IMAGE.tar CUDA_IMAGE.tar: prints a list of what the files of a release
contain (SPDX 2.3 as JSON): Debian's packages of which a file is in an image or is linked in
statically, packages of npm in the page, and podflame itself. It looks into the images. A file there
that is neither podflame's own nor a file of an installed Debian package is an error. release.sh
calls it, on the machine that has built the images."""
import base64
import glob
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from urllib.parse import quote

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# What the build makes; image.sh writes the files in etc/.
OWN = ("usr/bin/podflame", "libpodflame-cuda.so", "install", "etc/nsswitch.conf", "etc/passwd",
       "etc/group")
OWN_LICENCE = "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)"       # the second: bpf/


def die(text):
    sys.exit(f"sbom.py: {text}")


def digest(data, algorithm="sha256"):
    return hashlib.new(algorithm, data).hexdigest()


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


# ---- which package has a file ----

def of_toolchain(name):
    """A file that gcc links."""
    return output("gcc", f"-print-file-name={name}").strip()


def built_in():
    """Files of packages that are linked into the programs statically, or compiled into them."""
    cxxabi = os.environ.get("LIBCXXABI", "/usr/lib/llvm-19/lib/libc++abi.a")
    toolchain = [of_toolchain("libgcc.a"), of_toolchain("crt1.o")]
    return [
        [of_toolchain("libiberty.a"), cxxabi, "/usr/include/uthash.h",
         "/usr/include/bpf/bpf_helpers.h", *toolchain],
        [of_toolchain("libc.a"), *toolchain],
    ]


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        die(f"{path}: {e.strerror}")


def files_of(image):
    """The regular files in the layers of an image: name -> content."""
    with tarfile.open(image) as archive:
        layers = json.load(archive.extractfile("manifest.json"))[0]["Layers"]
        files = {}
        for layer in layers:
            with tarfile.open(fileobj=io.BytesIO(archive.extractfile(layer).read())) as t:
                files.update({os.path.normpath(m.name): t.extractfile(m).read()
                              for m in t.getmembers() if not m.isdir()})
    return files


def debian_packages(contents):
    """The names of the installed packages that have files of these contents: {file: content}."""
    wanted = {digest(content, "md5"): name for name, content in contents.items()}
    found = {}
    for path in sorted(glob.glob("/var/lib/dpkg/info/*.md5sums")):
        with open(path, encoding="utf-8", errors="replace") as f:
            for line in f:
                if line[:32] in wanted:
                    found.setdefault(wanted[line[:32]], os.path.basename(path)[:-len(".md5sums")])
    lacking = sorted(set(wanted.values()) - set(found))
    if lacking:
        die(f"no installed Debian package has {', '.join(lacking)}: build the images here again")
    return sorted(set(found.values()))


# ---- SPDX ----

def spdx_id(*parts):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", "-".join(parts))


def package(kind, name, version, licence="NOASSERTION", purl=None, **more):
    p = {"SPDXID": spdx_id(kind, name), "name": name, "versionInfo": version,
         "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
         "licenseConcluded": "NOASSERTION", "licenseDeclared": licence,
         "copyrightText": "NOASSERTION", **more}
    if purl:
        p["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": purl}]
    return p


def of_debian(name):
    fields = "${Package}\t${Version}\t${Architecture}\t${source:Package} ${source:Version}"
    name, version, arch, source = output("dpkg-query", "-W", "-f", fields, name).split("\t")
    with open("/etc/os-release", encoding="utf-8") as f:
        release = re.search(r'^VERSION_ID="?([^"\n]+)', f.read(), re.M).group(1)
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={arch}&distro=debian-{release}"
    return package("debian", name, version, purl=purl, supplier="Organization: Debian",
                   sourceInfo=f"built from {source}")


def of_npm():
    """The packages that the page is bundled with."""
    with open(f"{ROOT}/web/package-lock.json", encoding="utf-8") as f:
        locked = json.load(f)["packages"]
    for path, p in sorted(locked.items()):
        if not path or p.get("dev"):
            continue
        name = path.rsplit("node_modules/", 1)[1]
        algorithm, sum64 = p["integrity"].split("-", 1)
        yield package("npm", name, p["version"], p.get("license", "NOASSERTION"),
                      purl=f"pkg:npm/{quote(name)}@{p['version']}",
                      checksums=[{"algorithm": algorithm.upper(),
                                  "checksumValue": base64.b64decode(sum64).hex()}])


def of_otlp():
    """The package whose message descriptors are compiled into the program."""
    with open(f"{ROOT}/agent/lib/otlp/descriptors.sh", encoding="utf-8") as f:
        version = re.search(r"^version=(\S+)$", f.read(), re.M).group(1)
    return package("pypi", "opentelemetry-proto", version, "Apache-2.0",
                   purl=f"pkg:pypi/opentelemetry-proto@{version}")


def artifact(path, version, name, licence):
    return package("file", name, version, licence, packageFileName=os.path.basename(path),
                   supplier="Organization: podflame",
                   checksums=[{"algorithm": "SHA256", "checksumValue": digest(read(path))}])


def bill(version, chart, image, cuda_image):
    """The artifacts, and for each what it contains and what is built into it."""
    made = [artifact(chart, version, "podflame chart", "Apache-2.0")]
    parts = [([], [])]
    for path, name, built in zip((image, cuda_image), ("podflame image", "podflame-cuda image"),
                                 built_in()):
        files = files_of(path)
        foreign = {n: c for n, c in files.items() if n not in OWN}
        made.append(artifact(path, version, name, OWN_LICENCE))
        parts.append(([of_debian(n) for n in debian_packages(foreign)],
                      [of_debian(n) for n in debian_packages({p: read(p) for p in built})]))
    parts[1][1].extend([*of_npm(), of_otlp()])
    return made, parts


def document(version, made, parts):
    packages = {p["SPDXID"]: p for p in made}
    relations = []

    def relate(a, kind, b):
        relations.append({"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b})

    for whole, (contained, built) in zip(made, parts):
        relate("SPDXRef-DOCUMENT", "DESCRIBES", whole["SPDXID"])
        for kind, some in (("CONTAINS", contained), ("STATIC_LINK", built)):
            for p in some:
                packages[p["SPDXID"]] = p
                relate(whole["SPDXID"], kind, p["SPDXID"])
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    sums = digest("".join(p["checksums"][0]["checksumValue"] for p in made).encode())
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"podflame-{version}",
        "documentNamespace": f"https://podflame.io/spdx/podflame-{version}-{sums}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
            "creators": ["Organization: podflame", "Tool: charts/sbom.py"]},
        "packages": list(packages.values()), "relationships": relations}


def main():
    if len(sys.argv) != 5:
        die("usage: sbom.py VERSION CHART.tgz IMAGE.tar CUDA_IMAGE.tar")
    version, *files = sys.argv[1:]
    json.dump(document(version, *bill(version, *files)), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
