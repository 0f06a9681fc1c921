#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""engine.py FILE: ClickHouse's HTTP interface over chdb, for tests. It writes its port to FILE, and
ends when its standard input ends. The SQL, its errors, parameters and limits are those of the real
engine (chdb is ClickHouse as a library). This file makes up: sign-in (user "podflame", the password
in the environment variable PASSWORD), compression (zstd), TLS, tables that come with a statement
("external data"), ON CLUSTER (shards.py), and turns: chdb runs one query at a time."""
import argparse
import email.parser
import email.policy
import http.server
import io
import os
import re
import shutil
import ssl
import sys
import tempfile
import threading
import urllib.parse

import pyarrow
from chdb import session

import shards

PASSWORD = os.environ.get("PASSWORD", "")
# Of the URL, these are settings of a query; database chooses the database.
FIELD_BYTES = 131072        # a real server's http_max_field_value_size
PARSER_LIMITS = ["max_query_size", "max_ast_elements", "max_expanded_ast_elements"]
NOT_SETTINGS = {"query", "database", "default_format", "wait_end_of_query",
                "enable_http_compression", *PARSER_LIMITS}


def quote(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Engine:
    def __init__(self, data):
        self.lock = threading.Lock()
        self.dir = tempfile.TemporaryDirectory()
        self.session = session.Session(
            f"{data or self.dir.name + '/data'}?config-file={shards.config(self.dir.name)}")
        # of the address, but the engine needs them before it has parsed a statement
        for name in PARSER_LIMITS:
            self.session.query(f"SET {name} = 16777216")
        self.filters = shards.Filters()

    def run(self, sql, form, params, database):
        with self.lock:
            if database:
                self.session.query(f"USE {database}")
            self.filters.learn(sql)
            return self.session.query(shards.without_servers(sql), form, params=params).bytes()

    def insert(self, sql, settings, data):
        """INSERT INTO t (c, ...) FORMAT f, with the rows in data."""
        m = re.fullmatch(r"(INSERT INTO .*) FORMAT (\w+)\s*", sql, re.S)
        with self.lock, tempfile.NamedTemporaryFile(dir=self.dir.name) as f:
            f.write(data)
            f.flush()
            return self.session.query(
                f"{m[1]} FROM INFILE {quote(f.name)} {settings} FORMAT {m[2]}").bytes()


class TooLong(Exception):
    pass


def form_fields(content_type, body):
    """As a real server: fields of one name are one, and none that is no file is longer than
    FIELD_BYTES."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    m = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    fields = {}
    for part in m.iter_parts():
        name = part.get_param("name", header="content-disposition")
        value = part.get_payload(decode=True)
        if len(value) > FIELD_BYTES and not part.get_filename():
            raise TooLong(f"{name}: HTML Form Exception: Field value too long")
        fields[name] = fields.get(name, b"") + value
    return fields


def as_literals(sql, params):
    """Writes parameters that are no UTF-8, which chdb for Python cannot pass on, as literals."""
    for name, value in list(params.items()):
        if any("\udc80" <= c <= "\udcff" for c in value):
            # a literal has the escapes that a parameter has, and these
            plain = re.sub("[\udc80-\udcff]", lambda m: f"\\x{ord(m[0]) - 0xdc00:02x}",
                           params.pop(name))
            sql = sql.replace("{%s:String}" % name, f"'{plain}'")
            sql = sql.replace("{%s:Array(String)}" % name, plain)
    return sql


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def answer(self, status, data, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for k, v in headers.items():
            self.send_header(k.replace("_", "-"), v)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer(200, b"Ok.\n")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "zstd":
            body = pyarrow.CompressedInputStream(io.BytesIO(body), "zstd").read()
        if PASSWORD and (self.headers.get("X-ClickHouse-User"),
                         self.headers.get("X-ClickHouse-Key")) != ("podflame", PASSWORD):
            return self.answer(403, b"Code: 516. DB::Exception: podflame: Authentication failed\n",
                               X_ClickHouse_Exception_Code="516")
        url = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query,
                                          keep_blank_values=True))
        kind = self.headers.get("Content-Type", "")
        params, tables = {}, {}
        if kind.startswith("multipart/form-data"):
            try:
                fields = form_fields(kind, body)
            except TooLong as e:
                return self.answer(500, str(e).encode(), X_ClickHouse_Exception_Code="1000")
            tables = {k[:-len("_format")] for k in url if k.endswith("_format")} & set(fields)
            tables = {k: (fields.pop(k), url.pop(k + "_format"), url.pop(k + "_structure"))
                      for k in tables}
            fields = {k: v.decode("utf-8", "surrogateescape") for k, v in fields.items()}
            sql = fields.pop("query", url.get("query", ""))
            params = {k[len("param_"):]: v for k, v in fields.items()}
            sql = as_literals(sql, params)
            body = b""
        elif "query" in url:
            sql = url["query"]
        else:
            sql, body = body.decode("utf-8", "surrogateescape"), b""
        for name, (data, form, structure) in tables.items():
            path = os.path.join(self.server.engine.dir.name, f"{name}-{threading.get_ident()}")
            with open(path, "wb") as f:
                f.write(data)
            sql = re.sub(rf"\b{name}\b", f"file({quote(path)}, {form}, {quote(structure)})", sql)
        settings = [f"{k} = {quote(v)}" for k, v in url.items() if k not in NOT_SETTINGS]
        filters = self.server.engine.filters.setting(url.get("database"))
        if filters:
            settings.append(f"additional_table_filters = {filters}")
        settings = f"SETTINGS {', '.join(settings)}" if settings else ""
        try:
            if re.match(r"\s*INSERT\b.*\bFORMAT\s+\w+\s*$", sql, re.S | re.I):
                data = self.server.engine.insert(sql, settings, body)
            else:
                if re.match(r"\s*(SELECT|WITH)\b", sql, re.I):
                    sql = f"{sql} {settings}"
                data = self.server.engine.run(sql, url.get("default_format", "TabSeparated"),
                                              params, url.get("database"))
        except Exception as e:          # of chdb: the engine's own text
            m = re.search(r"Code: (\d+)", str(e))
            code = m[1] if m else "1001"
            return self.answer({"60": 404, "81": 404, "516": 403}.get(code, 500),
                               str(e).encode(), X_ClickHouse_Exception_Code=code)
        if (url.get("enable_http_compression") == "1" and
                "zstd" in self.headers.get("Accept-Encoding", "")):
            data = pyarrow.Codec("zstd").compress(data, asbytes=True)
            return self.answer(200, data, Content_Encoding="zstd")
        return self.answer(200, data)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("file")
    p.add_argument("--address", default="127.0.0.1")
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--data", help="the folder of the tables, also those of a run before")
    p.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"))
    args = p.parse_args()
    server = http.server.ThreadingHTTPServer((args.address, args.port), Handler)
    server.daemon_threads = True
    if args.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*args.tls)
        # the thread of the connection makes the handshake: a slow client holds up nobody
        server.socket = context.wrap_socket(server.socket, server_side=True,
                                            do_handshake_on_connect=False)
    server.engine = Engine(args.data)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with open(args.file + ".new", "w", encoding="ascii") as f:
        f.write(str(server.server_port))
    os.rename(args.file + ".new", args.file)
    sys.stdin.read()
    # chdb's own end crashes, or takes minutes at times, and nobody needs what it has stored
    shutil.rmtree(server.engine.dir.name, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
