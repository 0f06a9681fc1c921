# SPDX-License-Identifier: Apache-2.0
"""
The modules of agent/, as agent/DEPS lists them, and the rows of web/DEPS. This is the only parser
of these files, for all checks. They run in the root of the checkout.
"""
import os
import re
import subprocess
import sys


class Module:
    def __init__(self, name, line):
        self.name, self.line = name, line
        own = f"{name}/{os.path.basename(name)}.h"
        self.headers = {own}            # public ones: paths below agent/
        self.prefixes = []              # of its external symbols; without _ at the end: one symbol
        self.uses = []                  # modules; "bpf" means the headers of bpf/


def lines(path):
    """(line number, text) of each row: without comments, and with the lines below it that begin
    with a blank."""
    found = []
    for number, line in enumerate(open(path), 1):
        text = line.split("#")[0].rstrip()
        if text[:1].isspace() and found:
            found[-1][1] += text
        elif text:
            found.append([number, text])
    return found


def rows(path, form, bad):
    """{name: (line number, the words behind the name, the words behind the colon)}, in the order
    of the file. Adds to bad what is not a row of this form."""
    found = {}
    for number, text in lines(path):
        left, colon, right = text.partition(":")
        name, *words = left.split() or [""]
        if not colon or not name or name in found:
            bad.append(f"{path}:{number}: not a row of its own: {form}")
        else:
            found[name] = number, words, right.split()
    return found


def load(path="agent/DEPS"):
    """Name -> Module. Ends the program where a row is wrong."""
    modules, bad = {}, []
    form = "MODULE [HEADER.h ...] [PREFIX_ ...]: OTHER ..."
    for name, (number, words, uses) in rows(path, form, bad).items():
        m = modules[name] = Module(name, number)
        for word in words:
            if word.endswith(".h"):
                m.headers.add(f"{name}/{word}")
                if not os.path.exists(f"agent/{name}/{word}"):
                    bad.append(f"{path}:{number}: there is no agent/{name}/{word}")
            else:
                m.prefixes.append(word)
        m.uses = uses
    for m in modules.values():
        bad += [f"{path}:{m.line}: {m.name} lists {other}, which has no row" for other in m.uses
                if other not in modules and other != "bpf"]
        if len(set(m.uses)) < len(m.uses) or m.name in m.uses:
            bad.append(f"{path}:{m.line}: {m.name} lists a module twice, or itself")
    if bad:
        sys.exit("\n".join(bad))
    return modules


def module_of(path, modules):
    """
    The module of a file (path below agent/), or None: lib/X, node/X, hub/X or cli, with all below
    it; of agent/node/*.c and agent/hub/*.c it is node and hub, and of agent/*.c it is main.
    """
    folders = os.path.dirname(path).split("/")
    name = "/".join(folders[:2]) or "main"
    return name if name in modules else None


def is_test(path):
    """Whether this file is no part of the program: a test, a fuzzer, a benchmark, or a file that
    these share."""
    return bool(re.search(r"_(test|fuzz|bench)\.[ch]$|(^|/)(test|bench|fault|fuzz)\w*\.[ch]$",
                          path))
