#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# manifests.sh DIR: renders the chart with its default values as plain YAML for `kubectl apply -k
# DIR`, one file for each template. `make manifests` calls it; it needs helm.
set -euo pipefail
out=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
w=$(mktemp -d)
trap 'rm -rf "$w"' EXIT
if ! helm template podflame "$here/podflame" --namespace podflame-system \
    >"$w/all.yaml" 2>"$w/err"; then
    cat "$w/err" >&2
    exit 1
fi
python3 - "$w" <<'PY'
import collections, re, sys
w = sys.argv[1]
files = collections.OrderedDict()
for doc in re.split(r'^---\n', open(w + '/all.yaml').read(), flags=re.M):
    m = re.match(r'# Source: podflame/templates/(\S+)\n', doc)
    if not m:
        continue
    body = doc[m.end():]
    body = re.sub(r'^# SPDX.*\n', '', body, flags=re.M)
    body = re.sub(r'^\s*app\.kubernetes\.io/managed-by: Helm\n', '', body, flags=re.M)
    body = re.sub(r'^  annotations:\n    helm\.sh/resource-policy: keep\n', '', body, flags=re.M)
    body = re.sub(r'^    helm\.sh/resource-policy: keep\n', '', body, flags=re.M)
    files.setdefault(m.group(1), []).append(body.strip('\n') + '\n')
head = ('# SPDX-License-Identifier: Apache-2.0\n'
        '# Made by `make manifests` from charts/podflame: change that.\n')
for name, docs in files.items():
    open(w + '/' + name, 'w').write(head + '---\n' + '---\n'.join(docs))
open(w + '/namespace.yaml', 'w').write(head + '''apiVersion: v1
kind: Namespace
metadata:
  name: podflame-system
  labels:
    pod-security.kubernetes.io/enforce: privileged      # the agents use hostPID and hostPath
''')
order = ['namespace.yaml'] + sorted(files, key=lambda n: (n != 'crds.yaml', 'rbac' not in n, n))
resources = ''.join('  - %s\n' % n for n in order)
open(w + '/kustomization.yaml', 'w').write(head + '''# kubectl apply -k manifests/
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
''' + resources + '''# The image is in no public registry: load build/images/podflame.tar into the
# nodes, or name your registry here.
images:
  - name: localhost/podflame
    newName: localhost/podflame
    newTag: "%s"
''' % re.search(r'image: "?localhost/podflame:([^"\n]+)', open(w + '/all.yaml').read()).group(1))
PY
rm -f "$w/all.yaml" "$w/err"
mkdir -p "$out"
rm -f "$out"/*.yaml
cp "$w"/*.yaml "$out"/
chmod 644 "$out"/*.yaml
