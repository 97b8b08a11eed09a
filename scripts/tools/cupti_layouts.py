#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the records of each version of CUPTI look like, as its own headers say.

usage: cupti_layouts.py [--write] [FOLDER ...]

FOLDER: where versions are, or are put: one folder each, named as the version of the wheel.  Without
one: build/cupti, filled from PyPI (16 wheels of 10 MB).  What the headers say is compared with
tests/cuda/cupti_layouts.h, which the stand-in for libcupti of the tests is made of, and
--write makes that file.  Exit 1: it is not as the headers say; 77: nothing could be had.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIGURES = os.path.join(ROOT, "tests", "cuda", "cupti_layouts.h")
VERSIONS = {"nvidia-cuda-cupti-cu11": ["11.8.87"],
            "nvidia-cuda-cupti-cu12": ["12.0.90", "12.1.105", "12.2.142", "12.3.101", "12.4.127",
                                       "12.5.82", "12.6.80", "12.8.90", "12.9.79"],
            "nvidia-cuda-cupti": ["13.0.85", "13.1.115", "13.2.86", "13.3.75", "13.4.92",
                                  "13.5.25"]}
# A record's name here -> its struct, whose highest number is the one that the library
# writes; and its fields.  A field may be missing in old versions.
PLACE = "deviceId contextId streamId correlationId "
RECORDS = {
    "kernel": ("Kernel", PLACE + "start end name gridX gridY gridZ blockX blockY blockZ "
               "registersPerThread staticSharedMemory dynamicSharedMemory graphId graphNodeId"),
    "memcpy": ("Memcpy", PLACE + "copyKind srcKind dstKind flags bytes start end graphId"),
    "memcpy2": ("MemcpyPtoP", PLACE + "copyKind srcKind dstKind flags bytes start end srcDeviceId "
                "dstDeviceId graphId"),
    "memset": ("Memset", PLACE + "bytes start end memoryKind flags graphId"),
    "api": ("API", "cbid start end processId threadId correlationId returnValue"),
    "memory": ("Memory", PLACE + "memoryOperationType memoryKind address bytes timestamp processId "
               "isAsync"),
    "sync": ("Synchronization", "type start end correlationId contextId streamId cudaEventId"),
    "external": ("ExternalCorrelation", "externalKind externalId correlationId"),
    "overhead": ("Overhead", "overheadKind objectKind objectId start end"),
    "context": ("Context", "contextId deviceId"),
}
# The few types of CUDA's driver that the headers name; their sizes are those of the platform.
CUDA_H = """#pragma once
#include <stddef.h>
#include <stdint.h>
typedef struct CUctx_st *CUcontext; typedef struct CUstream_st *CUstream;
typedef struct CUfunc_st *CUfunction; typedef struct CUmod_st *CUmodule;
typedef struct CUgraph_st *CUgraph; typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec; typedef struct CUevent_st *CUevent;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef int CUdevice; typedef unsigned long long CUdeviceptr; typedef int CUresult;
typedef struct { char bytes[16]; } CUuuid;
typedef int CUdevice_attribute; typedef int CUgraphNodeType;
typedef uint32_t CUpti_CallbackId;
typedef int CUpti_CallbackDomain; typedef void *CUpti_SubscriberHandle;
typedef struct CUaccessPolicyWindow_st CUaccessPolicyWindow;
"""


def fetch(folder):
    """Every version that can be had."""
    for package, versions in VERSIONS.items():
        for version in versions:
            place = os.path.join(folder, version)
            if glob.glob(place + "/**/cupti_activity.h", recursive=True):
                continue
            with tempfile.TemporaryDirectory() as room:
                got = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps",
                                      "-d", room, "%s==%s" % (package, version)],
                                     capture_output=True, text=True, check=False)
                for wheel in glob.glob(room + "/*.whl"):
                    zipfile.ZipFile(wheel).extractall(place)
            if got.returncode:
                print("%s %s cannot be had: %s" % (package, version, got.stderr.strip()[-200:]))


def newest(text, name):
    """CUpti_Activity<name><the highest number>."""
    found = re.findall(r"^\} (CUpti_Activity%s(\d*));" % name, text, re.M)
    if name == "Memory":  # the unnumbered one is of another kind
        found = [f for f in found if f[1]]
    return max(found, key=lambda f: int(f[1] or 1))[0] if found else None


def figures(include):
    """(CUPTI_API_VERSION, {record: (struct, size, {field: (offset, size)})})."""
    with open(os.path.join(include, "cupti_activity.h")) as source:
        text = source.read()
    with open(os.path.join(include, "cupti_version.h")) as source:
        api = int(re.search(r"define CUPTI_API_VERSION (\d+)", source.read())[1])
    lines = ["#include <stdio.h>", "#include <cupti_activity.h>", "int main(void) {"]
    for record, (name, fields) in RECORDS.items():
        struct = newest(text, name)
        body = struct and re.search(r"typedef struct[^{;]*\{((?:(?!typedef struct).)*?)^\} %s;"
                                    % struct, text, re.S | re.M)
        if not body:
            continue
        lines.append('printf("%s %s %%zu\\n", sizeof(%s));' % (record, struct, struct))
        for field in fields.split():
            if re.search(r"\b%s;" % field, body[1]):
                lines.append('printf("%s.%s %%zu %%zu\\n", offsetof(%s, %s), '
                             'sizeof(((%s *)0)->%s));' % (record, field, struct, field, struct,
                                                          field))
    lines.append("return 0; }")
    with tempfile.TemporaryDirectory() as room:
        for header, content in ("cuda.h", CUDA_H), ("cupti_callbacks.h", ""):
            with open(os.path.join(room, header), "w") as made:
                made.write(content)
        with open(room + "/say.c", "w") as source:
            source.write("\n".join(lines))
        subprocess.run(["gcc", "-w", "-I", room, "-I", include, "-o", room + "/say",
                        room + "/say.c"], check=True)
        said = subprocess.run([room + "/say"], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in said.splitlines():
        what, *numbers = line.split()
        if "." in what:
            record, field = what.split(".")
            found[record][2][field] = tuple(map(int, numbers))
        else:
            found[what] = (numbers[0], int(numbers[1]), {})
    return api, found


def by_version(folder):
    """[(version, api, {record: ...})], the oldest first."""
    found = []
    for place in os.listdir(folder) if os.path.isdir(folder) else ():
        headers = glob.glob(os.path.join(folder, place) + "/**/cupti_activity.h", recursive=True)
        if headers and re.fullmatch(r"[0-9.]+", place):
            found.append((place,) + figures(os.path.dirname(headers[0])))
    return sorted(found, key=lambda f: [int(n) for n in f[0].split(".")])


def as_c(found):
    """The file of figures: each layout once, and which of them a version has."""
    layouts, versions = [], []
    for version, api, records in found:
        has = []
        for record in RECORDS:
            name, size, fields = records[record]
            layout = (record, name, size, tuple(sorted(fields.items(), key=lambda f: f[1])))
            if layout not in layouts:
                layouts.append(layout)
            has.append(layouts.index(layout))
        versions.append((version, api, has))
    lines = ["/* SPDX-License-Identifier: Apache-2.0",
             " *",
             " * tests/cuda/cupti_layouts.h - where the fields of CUPTI's records lie, version by "
             "version.",
             " *",
             " * Made by scripts/tools/cupti_layouts.py from CUPTI's own headers: figures only.",
             " */",
             "#ifndef TESTS_CUDA_CUPTI_LAYOUTS_H", "#define TESTS_CUDA_CUPTI_LAYOUTS_H", "",
             "/* clang-format off */",
             "static const struct cupti_layout layouts[] = {"]
    for record, name, size, fields in layouts:
        line = '    {"%s", "%s", %d, {' % (record, name, size)
        for field, (offset, width) in fields:
            piece = '{"%s", %d, %d}, ' % (field, offset, width)
            if len(line) + len(piece) > 100:
                lines.append(line.rstrip())
                line = "        "
            line += piece
        lines.append(line.rstrip(", ") + "}},")
    lines += ["};", "static const struct cupti_version versions[] = {"]
    lines += ['    {"%s", %d, {%s}},' % (v, api, ", ".join(map(str, has)))
              for v, api, has in versions]
    return "\n".join(lines + ["};", "/* clang-format on */", "", "#endif", ""])


def main(words):
    folder = next((w for w in words if not w.startswith("-")), None)
    if not folder:
        folder = os.path.join(ROOT, "build", "cupti")
        fetch(folder)
    found = by_version(folder)
    wanted = sum(map(len, VERSIONS.values()))
    if not found:
        print("no version of CUPTI could be had")
        return 77
    if "--write" in words:
        if len(found) < wanted:
            print("only %d of %d versions are there: nothing is written" % (len(found), wanted))
            return 77
        with open(FIGURES, "w") as out:
            out.write(as_c(found))
        return 0
    with open(FIGURES) as kept:
        text = kept.read()
    wrong = 0
    for version, api, records in found:
        said = re.search(r'\{"%s", (\d+), \{([0-9, ]+)\}\}' % re.escape(version), text)
        rows = re.findall(r'^    \{"\w+", "CUpti_\w+", \d+, \{.*?\}\},$', text, re.M | re.S)
        kept = [re.sub(r"\s+", " ", rows[int(i)]) for i in said[2].split(", ")] if said else []
        one = re.findall(r'^    \{"\w+", "CUpti_\w+", \d+, \{.*?\}\},$',
                         as_c([(version, api, records)]), re.M | re.S)
        if not said or int(said[1]) != api or kept != [re.sub(r"\s+", " ", r) for r in one]:
            print("%s: not as %s has it" % (version, os.path.relpath(FIGURES, ROOT)))
            wrong = 1
    print("%d of %d versions compared" % (len(found), wanted))
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
