#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
headers_test.py [DIRECTORY...]: compares the numbers, layouts and ids of calls in cuda/cupti.h,
cuda/cupti.c and the stand-ins of e2e/gpu with NVIDIA's own headers, of CUPTI 11.8, 12.9 and 13.5.
It takes the headers from Python packages, into a folder that is gone afterwards, or from the
directories that are named (each with the headers of one version somewhere below it). Part of `make
test-long`.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import zipfile

VERSIONS = (
    ("nvidia-cuda-cupti-cu11==11.8.87", "nvidia-cuda-runtime-cu11==11.8.89"),
    ("nvidia-cuda-cupti-cu12==12.9.79", "nvidia-cuda-runtime-cu12==12.9.79"),
    ("nvidia-cuda-cupti==13.5.25", "nvidia-cuda-runtime==13.5.37"),
)
# What the runtime's headers want of a file that is in the compiler's package.
HOST_DEFINES = """
#define __device_builtin__
#define __device_builtin_surface_type__
#define __device_builtin_texture_type__
#define __cudart_builtin__
#define __host__
#define __device__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDART_CB
"""
# Ours -> NVIDIA's
NUMBERS = {
    "CUPTI_OK": "CUPTI_SUCCESS",
    "CUPTI_OUT_OF_MEMORY": "CUPTI_ERROR_OUT_OF_MEMORY",
    "CUPTI_NO_MORE_RECORDS": "CUPTI_ERROR_MAX_LIMIT_REACHED",
    "CUPTI_OTHER_SUBSCRIBER": "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
    "CUPTI_DRIVER": "CUPTI_CB_DOMAIN_DRIVER_API",
    "CUPTI_RUNTIME": "CUPTI_CB_DOMAIN_RUNTIME_API",
    "CUPTI_ENTER": "CUPTI_API_ENTER",
    "CUPTI_EXIT": "CUPTI_API_EXIT",
    "CUPTI_MEMCPY": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_MEMSET": "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_KERNEL": "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_CONCURRENT_KERNEL": "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    "CUPTI_MEMCPY2": "CUPTI_ACTIVITY_KIND_MEMCPY2",
    "CUPTI_FLUSH_FORCED": "CUPTI_ACTIVITY_FLAG_FLUSH_FORCED",
    "CUPTI_DEVICE_BUFFER_SIZE": "CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE",
    "CUPTI_DEVICE_BUFFER_POOL_LIMIT": "CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT",
}
CALL = {"site": "callbackSite", "function": "functionName", "symbol": "symbolName",
        "context_number": "contextUid", "correlation": "correlationId"}
# kind of record -> NVIDIA's structure without its number
RECORDS = {"CUPTI_CONCURRENT_KERNEL": "Kernel", "CUPTI_KERNEL": "Kernel", "CUPTI_MEMCPY": "Memcpy",
           "CUPTI_MEMCPY2": "MemcpyPtoP", "CUPTI_MEMSET": "Memset"}
FIELDS = {"device": "deviceId", "context": "contextId", "stream": "streamId",
          "correlation": "correlationId", "graph_node": "graphNodeId", "name": "name",
          "graph": "graphId", "bytes": "bytes", "copy_kind": "copyKind"}
FIELDS_OF_KIND = {"name": ["Kernel"], "graph": ["Kernel"], "copy_kind": ["Memcpy", "MemcpyPtoP"],
                  "bytes": ["Memcpy", "MemcpyPtoP", "Memset"]}

here = os.path.dirname(os.path.abspath(__file__))


def download(packages, to):
    for package in packages:
        subprocess.run([sys.executable, "-m", "pip", "-q", "--disable-pip-version-check",
                        "download", "--no-deps", "-d", to, package], check=True)
    for wheel in glob.glob(f"{to}/*.whl"):
        with zipfile.ZipFile(wheel) as z:
            z.extractall(to, [n for n in z.namelist() if n.endswith(".h")])
        os.unlink(wheel)


def newest(record, text):
    """The structure of this record with the highest number."""
    numbers = re.findall(r"\} CUpti_Activity%s(\d+);" % record, text)
    return f"CUpti_Activity{record}{max(map(int, numbers))}"


def program(text):
    """A C program that prints what is different."""
    checks = [f'same("{ours}", {ours}, {theirs});' for ours, theirs in NUMBERS.items()]
    checks += [f'same("cupti_call.{ours}", offsetof(struct cupti_call, {ours}),'
               f' offsetof(CUpti_CallbackData, {theirs}));' for ours, theirs in CALL.items()]
    for kind, record in RECORDS.items():
        structure = newest(record, text)
        checks += [f'same("start", CUPTI_RECORD_START, offsetof({structure}, start));',
                   f'same("end", CUPTI_RECORD_END, offsetof({structure}, end));']
        for ours, theirs in FIELDS.items():
            value = (f"offsetof({structure}, {theirs})"
                     if record in FIELDS_OF_KIND.get(ours, [record]) else "CUPTI_NO_FIELD")
            checks.append(f'same("{structure}.{theirs}", cupti_record({kind})->{ours}, {value});')
    return '\n'.join(["#include <cupti.h>", '#include "cuda/cupti.h"', "#include <stdio.h>",
                      "static int bad;",
                      "static void same(const char *what, unsigned ours, unsigned theirs)",
                      "{", "if (ours != theirs)",
                      'bad = printf("%s: %u here, %u there\\n", what, ours, theirs);', "}",
                      "int main(void)", "{", *checks, "return bad != 0;", "}"])


def kind_of(name):
    """Which kind of work a function gives to a device, or None."""
    if re.match(r"cud?a?GraphLaunch", name):
        return "GRAPH"
    if re.match(r"(cu|cuda|__cuda)Launch(?!Host)", name):
        return "KERNEL"
    if re.match(r"(cu|cu64|cuda)Memcpy", name):
        return "COPY"
    if re.match(r"(cu|cu64|cuda)Memset", name):
        return "SET"
    return None


def wrong_calls(directory):
    rows = re.findall(r"\{(DRIVER|RUNTIME), (\d+), (\d+), (\w+)\}", open(f"{here}/cupti.c").read())
    ours = {(domain, i): kind for domain, first, last, kind in rows
            for i in range(int(first), int(last) + 1)}
    for domain in ("DRIVER", "RUNTIME"):
        text = open(f"{directory}/cupti_{domain.lower()}_cbid.h").read()
        for name, i in re.findall(r"_TRACE_CBID_(\w+)\s*=\s*(\d+)", text):
            have = ours.get((domain, int(i)))
            if name not in ("SIZE", "INVALID", f"cuda{i}") and kind_of(name) != have:
                yield f"{name} ({domain} {i}) is {have} here, {kind_of(name)} there"


def wrong_standins(directory):
    """Calls of e2e/gpu that report another function's id."""
    for domain, folder in (("driver", "driver"), ("runtime", "cudart")):
        text = open(f"{directory}/cupti_{domain}_cbid.h").read()
        theirs = {re.sub(r"_v\d{4,}$", "", name): i
                  for name, i in re.findall(r"_TRACE_CBID_(\w+)\s*=\s*(\d+)", text)}
        for path in glob.glob(f"{here}/../e2e/gpu/{folder}/*.c"):
            for function in open(path).read().split("\n}\n"):
                name = re.findall(r"^(?:CUresult|cudaError_t) (cu\w+)\(", function, re.M)
                i = re.search(r"CALL_OF_API\((\d+)", function)
                if name and i and theirs.get(name[-1]) != i[1]:
                    yield f"{name[-1]} is {i[1]} in {path}, {theirs.get(name[-1])} there"


def check(directory, work):
    """The differences, a line each."""
    cupti = os.path.dirname(glob.glob(f"{directory}/**/cupti_activity.h", recursive=True)[0])
    cuda = os.path.dirname(glob.glob(f"{directory}/**/cuda_runtime_api.h", recursive=True)[0])
    text = "".join(open(f).read() for f in glob.glob(f"{cupti}/cupti_activity*.h"))
    os.makedirs(f"{work}/crt", exist_ok=True)
    open(f"{work}/crt/host_defines.h", "w").write(HOST_DEFINES)
    open(f"{work}/check.c", "w").write(program(text))
    subprocess.run(["gcc", "-w", "-D_GNU_SOURCE", f"-I{cupti}", f"-I{cuda}", f"-I{work}",
                    f"-I{here}/..", f"{work}/check.c", f"{here}/cupti.c", "-o", f"{work}/check"],
                   check=True)
    out = subprocess.run([f"{work}/check"], capture_output=True, text=True).stdout
    return out.splitlines() + list(wrong_calls(cupti)) + list(wrong_standins(cupti))


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        directories = sys.argv[1:]
        if not directories:
            for i, packages in enumerate(VERSIONS):
                download(packages, f"{work}/{i}")
                directories.append(f"{work}/{i}")
        for directory in directories:
            found = check(directory, work)
            print("\n".join(f"{directory}: {line}" for line in found), end="\n" if found else "")
            failed += bool(found)
    print(f"{len(directories) - failed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


main()
