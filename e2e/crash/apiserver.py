# SPDX-License-Identifier: Apache-2.0
"""An API server that keeps objects in memory, over plain HTTP: what `podflame agent` and `podflame
hub` need of one. It has lists, watches, create, get, merge patch and delete; it accepts every token
for everything, as one of a pod on a given node."""
import http.server
import json
import queue
import threading
import urllib.parse

KINDS = {
    "pods": ("v1", "Pod"), "namespaces": ("v1", "Namespace"), "nodes": ("v1", "Node"),
    "secrets": ("v1", "Secret"), "configmaps": ("v1", "ConfigMap"),
    "profilingtargets": ("podflame.io/v1alpha1", "ProfilingTarget"),
    "clusterprofilingtargets": ("podflame.io/v1alpha1", "ClusterProfilingTarget"),
    "profilingnodereports": ("podflame.io/v1alpha1", "ProfilingNodeReport"),
}
NODE_CLAIM = "authentication.kubernetes.io/node-name"
# everybody is an agent: the hub takes what podflame has sampled from no other sender
AGENT = "system:serviceaccount:podflame-system:podflame-agent"


def place(path):
    """The resource, the namespace and the name in a path; None for a part that it does not have."""
    parts = [p for p in path.split("/") if p]
    parts = parts[2:] if parts[:1] == ["api"] else parts[3:]
    ns = name = None
    if len(parts) > 2 and parts[0] == "namespaces":
        ns, parts = parts[1], parts[2:]
    if len(parts) > 1:
        name = parts[1]
    return (parts[0] if parts else None), ns, name


def merge(into, patch):
    """A JSON merge patch (RFC 7386)."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            into[key] = merge(into[key] if isinstance(into.get(key), dict) else {}, value)
        else:
            into[key] = value
    return into


class Api:
    def __init__(self, node):
        """node: the name of the node that each token is of."""
        self.node = node
        self.lock = threading.RLock()
        self.objects = {kind: {} for kind in KINDS}
        self.version = 1
        self.watchers = []  # (kind, matches, queue)
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def do(self):
                api.handle(self)
            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):  # a client that was killed
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    # ---- objects ----
    def put(self, kind, obj):
        """Stores obj as it is now and sends it to the watches."""
        with self.lock:
            meta = obj.setdefault("metadata", {})
            key = (meta.get("namespace"), meta["name"])
            event = "MODIFIED" if key in self.objects[kind] else "ADDED"
            self.version += 1
            meta["resourceVersion"] = str(self.version)
            meta.setdefault("uid", "%08d-0000-4000-8000-000000000000" % self.version)
            meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            meta.setdefault("generation", 1)
            obj["apiVersion"], obj["kind"] = KINDS[kind]
            self.objects[kind][key] = obj
            self.tell(kind, event, obj)
            return obj

    def remove(self, kind, ns, name):
        with self.lock:
            obj = self.objects[kind].pop((ns, name), None)
            if obj:
                self.version += 1
                obj["metadata"]["resourceVersion"] = str(self.version)
                self.tell(kind, "DELETED", obj)
            return obj

    def tell(self, kind, event, obj):
        line = json.dumps({"type": event, "object": obj}).encode() + b"\n"
        for k, matches, q in self.watchers:
            if k == kind and matches(obj):
                q.put(line)

    def get(self, kind, ns, name):
        with self.lock:
            return self.objects[kind].get((ns, name))

    # ---- requests ----
    @staticmethod
    def reply(h, status, body):
        data = json.dumps(body).encode()
        h.send_response(status)
        h.send_header("Content-Type", "application/json")
        h.send_header("Content-Length", str(len(data)))
        h.end_headers()
        h.wfile.write(data)

    def handle(self, h):
        url = urllib.parse.urlsplit(h.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        length = int(h.headers.get("Content-Length") or 0)
        body = json.loads(h.rfile.read(length)) if length else None
        kind, ns, name = place(url.path)
        try:
            if kind in ("tokenreviews", "subjectaccessreviews"):
                self.review(h, kind, body)
            elif kind not in KINDS:
                self.reply(h, 404, {"kind": "Status", "code": 404, "message": "no such thing"})
            elif h.command == "GET" and name is None and query.get("watch") in ("1", "true"):
                self.watch(h, kind, ns, query)
            else:
                self.plain(h, kind, ns, name, query, body)
        except (BrokenPipeError, ConnectionResetError):
            h.close_connection = True

    def review(self, h, kind, body):
        spec = body["spec"]
        if kind == "tokenreviews":
            body["status"] = {"authenticated": True, "audiences": spec.get("audiences", []),
                              "user": {"username": AGENT, "groups": ["system:authenticated"],
                                       "extra": {NODE_CLAIM: [self.node]}}}
        else:
            body["status"] = {"allowed": True}
        self.reply(h, 201, body)

    def plain(self, h, kind, ns, name, query, body):
        with self.lock:
            old = self.objects[kind].get((ns, name))
            if h.command == "POST":
                body.setdefault("metadata", {}).setdefault("namespace", ns)
                status, answer = 201, self.put(kind, body)
            elif name is None:
                status, answer = 200, self.listing(kind, ns, query)
            elif not old:
                status, answer = 404, {"kind": "Status", "code": 404, "message": "not found"}
            elif h.command == "GET":
                status, answer = 200, old
            elif h.command == "DELETE":
                status, answer = 200, self.remove(kind, ns, name)
            else:
                new = body if h.command == "PUT" else merge(json.loads(json.dumps(old)), body)
                status, answer = 200, self.put(kind, new)
        self.reply(h, status, answer)

    @staticmethod
    def matcher(ns, query):
        field, _, value = query.get("fieldSelector", "").partition("=")
        is_not = field.endswith("!")

        def matches(obj):
            at = obj
            for part in field.rstrip("!").split(".") if field else []:
                at = at.get(part, {})
            in_namespace = ns is None or obj["metadata"].get("namespace") == ns
            return (not field or (at == value) != is_not) and in_namespace
        return matches

    def listing(self, kind, ns, query):
        matches = self.matcher(ns, query)
        version, name = KINDS[kind]
        return {"apiVersion": version, "kind": name + "List",
                "metadata": {"resourceVersion": str(self.version)},
                "items": [o for o in self.objects[kind].values() if matches(o)]}

    def watch(self, h, kind, ns, query):
        q = queue.Queue()
        matches = self.matcher(ns, query)
        since = int(query.get("resourceVersion") or 0)
        with self.lock:
            for o in self.objects[kind].values():  # what came between the list and here
                if matches(o) and int(o["metadata"]["resourceVersion"]) > since:
                    q.put(json.dumps({"type": "MODIFIED", "object": o}).encode() + b"\n")
            entry = (kind, matches, q)
            self.watchers.append(entry)
        h.send_response(200)
        h.send_header("Content-Type", "application/json")
        h.send_header("Transfer-Encoding", "chunked")
        h.end_headers()
        try:
            while True:
                try:
                    line = q.get(timeout=10)
                except queue.Empty:
                    metadata = {"resourceVersion": str(self.version)}
                    bookmark = {"type": "BOOKMARK", "object": {"metadata": metadata}}
                    line = json.dumps(bookmark).encode() + b"\n"
                h.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                h.wfile.flush()
        finally:
            with self.lock:
                self.watchers.remove(entry)

    def kubeconfig(self):
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "crash",
            "contexts": [{"name": "crash", "context": {"cluster": "crash", "user": "crash"}}],
            "clusters": [{"name": "crash", "cluster": {"server": self.url}}],
            "users": [{"name": "crash", "user": {}}]})


def pod(name, ns, node, uid, container_id, labels):
    """A running pod of one container."""
    return {"metadata": {"name": name, "namespace": ns, "uid": uid, "labels": labels},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "burner"}]},
            "status": {"phase": "Running", "qosClass": "BestEffort", "containerStatuses": [
                {"name": "main", "image": "burner", "imageID": "burner", "ready": True,
                 "restartCount": 0,
                 "containerID": "containerd://" + container_id,
                 "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}}
