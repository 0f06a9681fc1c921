#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""openapi.py YAML HEADER: writes openapi.yaml as JSON into a C header."""
import json
import sys

import yaml

with open(sys.argv[1], encoding="utf-8") as f:
    text = json.dumps(yaml.safe_load(f), separators=(",", ":"))
with open(sys.argv[2], "w", encoding="utf-8") as f:
    f.write("/* made from openapi.yaml by openapi.py */\n")
    f.write(f"static const char openapi_json[] = {{{','.join(str(b) for b in text.encode())}}};\n")
