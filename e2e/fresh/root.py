# SPDX-License-Identifier: Apache-2.0
"""root.py: makes a folder that holds a bare Debian 12 and this repository. Of this machine it has
only where packages come from, and how hosts are found."""
import filecmp
import glob
import os
import shutil
import subprocess

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROJECT = "podflame"  # the repository's folder in the root
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Variables that say how clients reach their registries. A folder of wheels or a cache of this
# machine is left out.
PASSED = [
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS",
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_CERT", "PIP_PROXY",
    "PIP_DEFAULT_TIMEOUT",
    "npm_config_registry", "npm_config_cafile", "npm_config_proxy", "npm_config_https_proxy",
]
# variables that name a file, which is copied, too
FILES_PASSED = ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "npm_config_cafile"]
GO_PASSED = ["GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOSUMCHECK", "GOPRIVATE", "GONOPROXY",
             "GOINSECURE"]
NPM_PASSED = ("registry", "cafile", "proxy", "https-proxy", "noproxy", "strict-ssl", "@", "//")


class Missing(Exception):
    """What is missing on this machine to make a root."""


def output(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def debian_uri(suite):
    found = subprocess.run([f"{REPO}/.ci/debian-uri", suite], capture_output=True, text=True,
                           check=False).stdout.strip()
    return found or None


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def apt_sources(root):
    lines = []
    for suite in "bookworm", "bookworm-updates", "bookworm-security":
        uri = debian_uri(suite)
        if uri:
            lines.append(f"deb [signed-by={KEYRING}] {uri} {suite} main\n")
    write(f"{root}/etc/apt/sources.list", "".join(lines))
    acquire = output("apt-config", "dump", "Acquire").splitlines(keepends=True)
    write(f"{root}/etc/apt/apt.conf.d/90sources",
          "".join(line for line in acquire if "::IndexTargets" not in line))
    for path in ["/etc/apt/auth.conf", *glob.glob("/etc/apt/auth.conf.d/*")]:
        if os.path.exists(path):
            shutil.copy2(path, root + path)


def authorities(root):
    """A variable that names a file of certificates means the same file in the root."""
    for name in FILES_PASSED:
        path = os.environ.get(name)
        if path and os.path.isabs(path) and os.path.isfile(path) \
                and not os.path.exists(root + path):
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            shutil.copy(path, root + path)


def other_sources(root):
    """Where pip and npm get packages, and certificates that this machine trusts: the package
    ca-certificates takes these up."""
    for path in glob.glob("/usr/local/share/ca-certificates/*.crt"):
        os.makedirs(f"{root}/usr/local/share/ca-certificates", exist_ok=True)
        shutil.copy(path, root + path)
    home = os.path.expanduser("~")
    for path in "/etc/pip.conf", f"{home}/.pip/pip.conf", f"{home}/.config/pip/pip.conf":
        if os.path.exists(path):
            inside = root + (path if not path.startswith(home) else "/root" + path[len(home):])
            os.makedirs(os.path.dirname(inside), exist_ok=True)
            shutil.copy(path, inside)
    if os.path.exists(f"{home}/.npmrc"):
        with open(f"{home}/.npmrc", encoding="utf-8") as f:
            write(f"{root}/root/.npmrc", "".join(line for line in f if line.startswith(NPM_PASSED)))


def environment():
    """The environment of a command that runs in a root."""
    env = {name: os.environ[name] for name in PASSED if name in os.environ}
    if shutil.which("go"):
        env.update(zip(GO_PASSED, output("go", "env", *GO_PASSED, cwd="/").splitlines()))
    env.update((name, os.environ[name]) for name in GO_PASSED if name in os.environ)
    env = {name: value for name, value in env.items() if value}
    env.update(HOME="/root", TERM="xterm",
               PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return env


def debian(root):
    """README: "a Debian 12 machine with nothing on it but make and this repository"."""
    uri = debian_uri("bookworm")
    if not uri:
        raise Missing("no source of Debian bookworm in /etc/apt")
    if not shutil.which("debootstrap"):
        raise Missing("no debootstrap here: .ci/deps long installs it")
    include = "make,ca-certificates" if uri.startswith("https:") else "make"
    new = f"{root}.new"  # a root that is there is whole
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new)
    with open(f"{root}.log", "w", encoding="utf-8") as log:
        # what it mounts is gone with it, also when it is interrupted
        subprocess.run(["unshare", "--mount", "--propagation", "private", "debootstrap",
                        "--variant=minbase", f"--include={include}",
                        "bookworm", new, uri], stdin=subprocess.DEVNULL, stdout=log,
                       stderr=subprocess.STDOUT, check=True)
    apt_sources(new)
    other_sources(new)
    authorities(new)
    os.rename(new, root)


def files(checkout):
    return set(output("git", "ls-files", "-z", "-co", "--exclude-standard",
                      cwd=checkout).split("\0"))


def same(a, b):
    """Two files are the same: their bytes and who may run them. A link never is, because making it
    again costs nothing."""
    if os.path.islink(a) or os.path.islink(b) or not os.path.exists(b):
        return False
    return os.stat(a).st_mode == os.stat(b).st_mode and filecmp.cmp(a, b, shallow=False)


def repository(root):
    """The files of this working tree: committed ones, changed ones, and new ones that git does not
    ignore."""
    to = f"{root}/{PROJECT}"
    if not os.path.exists(to):
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", REPO, to], check=True)
    for path in files(REPO) | files(to):
        a, b = f"{REPO}/{path}", f"{to}/{path}"
        if not path:
            continue
        if not os.path.lexists(a):
            if os.path.lexists(b):
                os.remove(b)
        elif not same(a, b):
            os.makedirs(os.path.dirname(b), exist_ok=True)
            if os.path.lexists(b):
                os.remove(b)
            shutil.copy2(a, b, follow_symlinks=False)


def network(root):
    for path in "/etc/resolv.conf", "/etc/hosts", "/etc/hostname":
        if os.path.exists(path):
            shutil.copy(path, root + path)
