# SPDX-License-Identifier: Apache-2.0
"""plugins/gpu/nvml/nvml.h against NVIDIA's own words: the header nvml.h and the module pynvml.

They are not ours to ship: a folder with both may be named by PROBING_TEST_NVML; in the full tests
pip fetches them (nvidia-nvml-dev, nvidia-ml-py) where there is a network."""
import ctypes
import importlib.util
import os
import re
import subprocess
import sys
import zipfile

import pytest
from world import BUILD, ROOT

OURS = ROOT / "plugins" / "gpu" / "nvml" / "nvml.h"
READER = (ROOT / "plugins" / "gpu" / "nvml" / "nvml_reader.c").read_text()
PACKAGES = ("nvidia-nvml-dev==13.5.37", "nvidia-ml-py==13.615.71")

# Ours, and NVIDIA's: structs with their fields in order.
STRUCTS = {
    "nvml_pci": ("nvmlPciInfo_t", {
        "legacy_bus_id": "busIdLegacy", "domain": "domain", "bus": "bus", "device": "device",
        "device_id": "pciDeviceId", "subsystem_id": "pciSubSystemId", "bus_id": "busId"}),
    "nvml_utilization": ("nvmlUtilization_t", {"gpu": "gpu", "memory": "memory"}),
    "nvml_memory": ("nvmlMemory_t", {"total": "total", "free": "free", "used": "used"}),
    "nvml_memory_2": ("nvmlMemory_v2_t", {
        "version": "version", "total": "total", "reserved": "reserved", "free": "free",
        "used": "used"}),
    "nvml_process_1": ("nvmlProcessInfo_v1_t", {"pid": "pid", "used_bytes": "usedGpuMemory"}),
    "nvml_process_2": ("nvmlProcessInfo_v2_t", {
        "pid": "pid", "used_bytes": "usedGpuMemory", "gpu_instance": "gpuInstanceId",
        "compute_instance": "computeInstanceId"}),
    "nvml_field": ("nvmlFieldValue_t", {
        "field": "fieldId", "scope": "scopeId", "timestamp_us": "timestamp",
        "latency_us": "latencyUsec", "type": "valueType", "result": "nvmlReturn",
        "value": "value"}),
}
NUMBERS = {
    "NVML_OK": "NVML_SUCCESS", "NVML_UNINITIALIZED": "NVML_ERROR_UNINITIALIZED",
    "NVML_NOT_SUPPORTED": "NVML_ERROR_NOT_SUPPORTED",
    "NVML_NO_PERMISSION": "NVML_ERROR_NO_PERMISSION",
    "NVML_INSUFFICIENT_SIZE": "NVML_ERROR_INSUFFICIENT_SIZE",
    "NVML_DRIVER_NOT_LOADED": "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVML_GPU_IS_LOST": "NVML_ERROR_GPU_IS_LOST",
    "NVML_RESET_REQUIRED": "NVML_ERROR_RESET_REQUIRED",
    "NVML_GPU_NOT_FOUND": "NVML_ERROR_GPU_NOT_FOUND", "NVML_UNKNOWN": "NVML_ERROR_UNKNOWN",
    "NVML_NAME_BYTES": "NVML_DEVICE_NAME_V2_BUFFER_SIZE",
    "NVML_VERSION_BYTES": "NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE",
    "NVML_MEMORY_2": "nvmlMemory_v2",
    "NVML_FIELD_LINK_COUNT": "NVML_FI_DEV_NVLINK_LINK_COUNT",
    "NVML_FIELD_LINK_TX_KIB": "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX",
    "NVML_FIELD_LINK_RX_KIB": "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX",
    "NVML_FIELD_BUS_TX_BYTES": "NVML_FI_DEV_PCIE_COUNT_TX_BYTES",
    "NVML_FIELD_BUS_RX_BYTES": "NVML_FI_DEV_PCIE_COUNT_RX_BYTES",
    "NVML_DOUBLE": "NVML_VALUE_TYPE_DOUBLE", "NVML_U32": "NVML_VALUE_TYPE_UNSIGNED_INT",
    "NVML_ULONG": "NVML_VALUE_TYPE_UNSIGNED_LONG", "NVML_U64": "NVML_VALUE_TYPE_UNSIGNED_LONG_LONG",
    "NVML_I64": "NVML_VALUE_TYPE_SIGNED_LONG_LONG", "NVML_I32": "NVML_VALUE_TYPE_SIGNED_INT",
    "NVML_U16": "NVML_VALUE_TYPE_UNSIGNED_SHORT",
    "NVML_CLOCK_MEMORY": "NVML_CLOCK_MEM", "NVML_CLOCK_SM": "NVML_CLOCK_SM",
    "NVML_CORRECTED": "NVML_MEMORY_ERROR_TYPE_CORRECTED",
    "NVML_UNCORRECTED": "NVML_MEMORY_ERROR_TYPE_UNCORRECTED",
    "NVML_SINCE_DRIVER": "NVML_VOLATILE_ECC",
    "NVML_BUS_TX": "NVML_PCIE_UTIL_TX_BYTES", "NVML_BUS_RX": "NVML_PCIE_UTIL_RX_BYTES",
    "NVML_REASON_IDLE": "nvmlClocksEventReasonGpuIdle",
    "NVML_REASON_APPLICATION_CLOCKS": "nvmlClocksEventReasonApplicationsClocksSetting",
    "NVML_REASON_POWER_CAP": "nvmlClocksEventReasonSwPowerCap",
    "NVML_REASON_HARDWARE": "nvmlClocksThrottleReasonHwSlowdown",
    "NVML_REASON_SYNC_BOOST": "nvmlClocksEventReasonSyncBoost",
    "NVML_REASON_THERMAL": "nvmlClocksEventReasonSwThermalSlowdown",
    "NVML_REASON_HARDWARE_THERMAL": "nvmlClocksThrottleReasonHwThermalSlowdown",
    "NVML_REASON_POWER_BRAKE": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
    "NVML_REASON_DISPLAY": "nvmlClocksEventReasonDisplayClockSetting",
    "NVML_REASON_BOARD_LIMIT": "nvmlClocksEventReasonBoardLimit",
    "NVML_REASON_RELIABILITY": "nvmlClocksEventReasonReliability",
}
# NVIDIA's types of parameters in ours.
WIDTHS = {"unsigned int": "u32", "int": "i32", "unsigned long long": "u64", "char": "char",
          "uint32_t": "u32", "int32_t": "i32", "uint64_t": "u64"}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A folder with nvml.h and pynvml.py."""
    named = os.environ.get("PROBING_TEST_NVML")
    folder = BUILD.parent / "nvml"
    if named:
        return named
    if (folder / "nvml.h").exists() and (folder / "pynvml.py").exists():
        return str(folder)
    if not os.environ.get("PROBING_TEST_FULL"):
        pytest.skip("NVIDIA's header is not here: PROBING_TEST_NVML=FOLDER, or PROBING_TEST_FULL=1")
    wheels = tmp_path_factory.mktemp("wheels")
    done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d",
                           str(wheels), *PACKAGES], capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip("pip does not fetch NVIDIA's header: " + done.stderr[-300:])
    folder.mkdir(exist_ok=True)
    for wheel in wheels.iterdir():
        with zipfile.ZipFile(wheel) as z:
            for name in z.namelist():
                if os.path.basename(name) in ("nvml.h", "pynvml.py"):
                    (folder / os.path.basename(name)).write_bytes(z.read(name))
    return str(folder)


def printed(tmp_path, name, include, lines):
    """{name: number} as a program says that is made of `lines`."""
    source = tmp_path / (name + ".c")
    source.write_text("#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n%s\n"
                      "int main(void)\n{\n%s\nreturn 0;\n}\n" % (include, "\n".join(
                          'printf("%%s %%lld\\n", "%s", (long long)(%s));' % line
                          for line in lines)))
    program = tmp_path / name
    subprocess.run(["cc", "-w", "-o", str(program), str(source)], check=True)
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return {k: int(v) for k, v in (line.rsplit(" ", 1) for line in said.splitlines())}


def test_structs_and_numbers_are_those_of_the_header(theirs, tmp_path):
    ours, real = [(n, n) for n in NUMBERS], list(NUMBERS.items())
    for struct, (type_, fields) in STRUCTS.items():
        ours.append((struct, "sizeof(struct %s)" % struct))
        real.append((struct, "sizeof(%s)" % type_))
        for field, name in fields.items():
            key = struct + "." + field
            ours += [(key, "offsetof(struct %s, %s)" % (struct, field)),
                     (key + " size", "sizeof(((struct %s *)0)->%s)" % (struct, field))]
            real += [(key, "offsetof(%s, %s)" % (type_, name)),
                     (key + " size", "sizeof(((%s *)0)->%s)" % (type_, name))]
    mine = printed(tmp_path, "ours", '#include "%s"' % OURS, ours)
    assert mine == printed(tmp_path, "real", '#include "%s/nvml.h"' % theirs, real)
    # And nothing that ours names is left out above.
    text = re.sub(r"/\*.*?\*/", "", OURS.read_text(), flags=re.S)
    assert set(re.findall(r"^struct (\w+) \{", text, re.M)) - {"nvml_functions"} == set(STRUCTS)
    assert set(re.findall(r"^    (NVML_\w+) = ", text, re.M)) | set(
        re.findall(r"(?<=[{,] )(NVML_\w+) = ", text)) <= set(NUMBERS)


def parameters(text):
    """The widths of what a prototype takes: structs and enums by their kind only."""
    found = []
    for one in text.split(","):
        one = re.sub(r"\bconst\b", "", one).strip()
        pointer = "*" if "*" in one else ""
        type_ = re.match(r"((?:unsigned |long |struct )*\w+)", one)[1]
        type_ = re.sub(r" long$", " long", type_)
        found.append(WIDTHS.get(type_, "void" if type_ == "void" else "other") + pointer)
    return found


def test_functions_take_what_the_header_says(theirs):
    header = open(os.path.join(theirs, "nvml.h")).read()
    ours = dict(re.findall(r"\(\*(\w+)(?:\[2\])?\)\((.*?)\);", OURS.read_text(), re.S))
    names = re.findall(r'\{&f->(\w+)(?:\[\d\])?,\s*((?:"[^"]*"\s*)+)\}', READER)
    assert len(names) >= 30
    assert {n for n, _ in names} == set(ours)
    for ours_name, quoted in names:
        for name in "".join(re.findall('"([^"]*)"', quoted)).split():
            said = re.search(r"^(?:DEPRECATED\(\S+\) )?(?:nvmlReturn_t|const) DECLDIR (?:char\* )?"
                             r"nvml%s\((.*?)\);" % name, header, re.M | re.S)
            if said is None:  # an old name, of which the header has no prototype any more
                assert name in ("Init", "DeviceGetCount", "DeviceGetHandleByIndex"), name
                continue
            mine, real = parameters(ours[ours_name]), parameters(said[1])
            # A device is a pointer of no kind that the header shows, an enum is an int.
            pairs = [(a, b) for a, b in zip(mine, real)
                     if (a, b) not in (("other*", "other"), ("u32", "other"), ("i32", "other"),
                                       ("other**", "other*"))]
            assert len(mine) == len(real) and all(a == b for a, b in pairs), (name, mine, real)


def test_structs_are_those_of_pynvml(theirs, tmp_path):
    """Which is written by hand, too, and used by everybody."""
    spec = importlib.util.spec_from_file_location("pynvml_of_nvidia",
                                                  os.path.join(theirs, "pynvml.py"))
    pynvml = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = pynvml  # it looks itself up
    spec.loader.exec_module(pynvml)
    sizes = printed(tmp_path, "sizes", '#include "%s"' % OURS,
                    [(s, "sizeof(struct %s)" % s) for s in STRUCTS])
    for ours, name in (("nvml_pci", "nvmlPciInfo_t"), ("nvml_utilization", "c_nvmlUtilization_t"),
                       ("nvml_memory", "c_nvmlMemory_t"), ("nvml_memory_2", "c_nvmlMemory_v2_t"),
                       ("nvml_field", "c_nvmlFieldValue_t")):
        assert ctypes.sizeof(getattr(pynvml, name)) == sizes[ours], name
    assert pynvml.nvmlMemory_v2 == 2 << 24 | sizes["nvml_memory_2"]
