#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""release_test.py: what `make release` makes is usable: the chart installs what the chart in the
tree does, the images are what the sums, the chart and their own manifests say, and the bill of
materials has what the programs are linked with. Needs build/images (make image)."""
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
IMAGES = [f"{BUILD}/images/podflame.tar", f"{BUILD}/images/podflame-cuda.tar"]


def run(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, **more)


def output(*command, **more):
    r = run(*command, **more)
    if r.returncode:
        sys.exit(f"release_test.py: {' '.join(command)}: {r.stderr}")
    return r.stdout


def read(path, mode="r"):
    with open(path, mode) as f:
        return f.read()


def release(out, *images, umask=0o022):
    version = re.search(r"^VERSION := (\S+)", read(f"{ROOT}/Makefile"), re.M).group(1)
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    return run(f"{ROOT}/charts/release.sh", out, version, *(images or IMAGES), env=env, umask=umask)


def image_of(path):
    """The names of an image, and whether its layer is the one that its configuration names."""
    with tarfile.open(path) as t:
        (m,) = json.load(t.extractfile("manifest.json"))
        config = json.load(t.extractfile(m["Config"]))
        sums = ["sha256:" + hashlib.sha256(t.extractfile(x).read()).hexdigest()
                for x in m["Layers"]]
    return m["RepoTags"], sums == config["rootfs"]["diff_ids"]


def is_valid(spdx):
    """Whether the references in a bill of materials lead somewhere, and all members are there."""
    ids = [p["SPDXID"] for p in spdx["packages"]]
    known = {"SPDXRef-DOCUMENT", *ids}
    needed = ("name", "versionInfo", "downloadLocation", "licenseDeclared")
    return (len(ids) == len(set(ids)) and spdx["spdxVersion"] == "SPDX-2.3"
            and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", spdx["creationInfo"]["created"])
            and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", i) for i in ids)
            and all(p.get(n) for p in spdx["packages"] for n in needed)
            and all({r["spdxElementId"], r["relatedSpdxElement"]} <= known
                    for r in spdx["relationships"]))


def linked():
    """Name and version of the packages of the libraries with which the program is linked."""
    names = re.findall(r"(\S+) => /", output("ldd", f"{BUILD}/podflame"))
    found = output("dpkg-query", "-S", *(f"*/x86_64-linux-gnu/{n}" for n in names))
    packages = sorted({line.split(":")[0] for line in found.splitlines()})
    return dict(line.split("\t") for line in output(
        "dpkg-query", "-W", "-f", "${Package}\t${Version}\n", *packages).splitlines())


def versions(spdx, whole):
    """Name and version of all that is in an artifact."""
    by_id = {p["SPDXID"]: p for p in spdx["packages"]}
    (of,) = [i for i, p in by_id.items() if p["name"] == whole]
    inside = [by_id[r["relatedSpdxElement"]] for r in spdx["relationships"]
              if r["spdxElementId"] == of]
    return {p["name"]: p["versionInfo"] for p in inside}


def bundled(name):
    return json.loads(read(f"{BUILD}/web/node_modules/{name}/package.json"))["version"]


def with_foreign_library(w):
    """An image with a library that no Debian package has."""
    os.makedirs(f"{w}/root/usr/lib")
    with open(f"{w}/root/usr/lib/libstranger.so.1", "w") as f:
        f.write("a stranger")
    output(f"{ROOT}/e2e/cluster/mkimage.sh", "localhost/x:1", f"{w}/root", f"{w}/x.tar", "/x")
    return f"{w}/x.tar"


def test(w):
    """The results of all tests, by name."""
    made = release(f"{w}/a")
    if made.returncode:
        sys.exit(made.stderr)
    (chart,) = [f"{w}/a/{n}" for n in os.listdir(f"{w}/a") if n.endswith(".tgz")]
    images = sorted(f"{w}/a/{n}" for n in os.listdir(f"{w}/a") if n.endswith(".tar"))
    (bill,) = [f"{w}/a/{n}" for n in os.listdir(f"{w}/a") if n.endswith(".spdx.json")]
    spdx = json.loads(read(bill))
    rendered = output("helm", "template", "podflame", chart, "-n", "podflame-system")
    inside, in_cuda = versions(spdx, "podflame image"), versions(spdx, "podflame-cuda image")
    used = sorted(set(re.findall(r"localhost/podflame[\w-]*:[\w.]+", rendered)))
    refused = release(f"{w}/c", with_foreign_library(w), IMAGES[1])
    return {
        "the sums are those of all other files":
            run("sha256sum", "-c", "--strict", "SHA256SUMS", cwd=f"{w}/a").returncode == 0
            and len(read(f"{w}/a/SHA256SUMS").splitlines()) == len(os.listdir(f"{w}/a")) - 1,
        "the same inputs give the same bytes":
            release(f"{w}/b", umask=0o077).returncode == 0
            and read(f"{w}/a/SHA256SUMS") == read(f"{w}/b/SHA256SUMS"),
        "helm takes the chart":
            run("helm", "lint", "--strict", chart).returncode == 0,
        "... and renders what the chart in the tree does":
            rendered == output("helm", "template", "podflame", f"{ROOT}/charts/podflame", "-n",
                               "podflame-system"),
        "the images are whole": all(image_of(i)[1] for i in images),
        "the chart uses the image": used == image_of(images[0])[0],
        "the bill of materials is valid": bool(is_valid(spdx)),
        "... has each library of the program, in its version":
            len(linked()) > 10 and linked().items() <= inside.items() and "libbpf1" in inside,
        "... what is linked statically":
            {"libiberty-dev", "libc++abi-19-dev", "uthash-dev"} <= inside.keys()
            and "libc6-dev" in in_cuda,
        "... and the packages of the page":
            all(inside.get(n) == bundled(n) for n in ("preact", "uplot")),
        "a library of no known package is refused":
            refused.returncode != 0 and "libstranger.so.1" in refused.stderr
            and not os.path.exists(f"{w}/c"),
    }


def main():
    with tempfile.TemporaryDirectory() as w:
        results = test(w)
    for name, is_right in results.items():
        print("ok" if is_right else "not ok", name)
    passed = sum(results.values())
    print(f"{passed} passed, {len(results) - passed} failed")
    return int(passed < len(results))


if __name__ == "__main__":
    sys.exit(main())
