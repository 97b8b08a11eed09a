# SPDX-License-Identifier: Apache-2.0
"""Names of kernels in the tables: as people write them, as long as a table should have them, and
whatever a program calls its kernels.  (What each is made of: sdk/lib/demangle/demangle_test.c.)
"""
import random
import re

from standin import Device
from world import wait_for

GEMM = "_ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_256x128_16x3_nn_align4EEvNT_6ParamsE"
PLAIN = ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x128_16x3_nn_align4>(cutlass_80_"
         "tensorop_s1688gemm_256x128_16x3_nn_align4::Params)")
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def bomb(parts):
    """Each part has the one before twice."""
    name = "_Z1f1a"
    for i in range(parts):
        n = 2 * i - 1
        index = "S_" if i == 0 else "S%s_" % (DIGITS[n] if n < 36 else
                                              DIGITS[n // 36] + DIGITS[n % 36])
        name += "PFv%s%sE" % (index, index)
    return name


def test_names_are_plain_in_sql(world):
    d = Device(world, "driver", "cupti")
    d.wait_state("tracing")
    d.do("kernel(%r); kernel('of_c'); kernel('_Znonsense'); kernel('_Z4fillILi4EEvi')" % GEMM)
    assert d.wait_rows("select name from cuda.kernels order by ts", 4) == [
        [PLAIN], ["of_c"], ["_Znonsense"], ["void fill<4>(int)"]]
    d.wait_rows("select 1 from cuda.kernel_stats", 4)
    assert d.rows("select count(*) from cuda.kernel_stats where name like '%gemm_256%'") == [[1]]
    out = world.tmp / "flame.folded"
    done = d.target.probing("flamegraph", "cuda", "--format", "folded", "-o", str(out))
    assert done.returncode == 0 and "(no module);" + PLAIN.replace(";", ":") in out.read_text()
    said = d.target.probing("cuda").stdout
    assert re.search(r"^  fill<4> +1 ", said, re.M), said


def test_long_names_are_cut_and_told_apart(world):
    d = Device(world, "driver", "cupti")
    d.wait_state("tracing")
    d.do("""
for end in 'i', 'f':
    kernel('_Z6kernelIJ' + 150 * '5Layer' + end + 'EEvDpT_')
    kernel(2000 * 'x' + end)
    kernel(40000 * 'y' + end)  # beyond what is read of it
kernel(1023 * 'z')
""")
    names = [n for n, in d.wait_rows("select name from cuda.kernels order by ts", 7)]
    assert all(len(n) == 1023 for n in names)
    assert all(re.search(r"\.\.\.#[0-9a-f]{16}$", n) for n in names[:6]), names
    assert names[0].startswith("void kernel<Layer, Layer, ") and len(set(names)) == 6
    assert names[6] == 1023 * "z"


def test_names_that_nobody_would_write(world):
    """Names that make C++ libraries fill all memory, or their stack; and ones changed at random."""
    d = Device(world, "driver", "cupti", settings=["cuda.max_rows_per_second=100000"])
    d.wait_state("tracing")
    d.do("kernel('first')")
    d.wait_rows("select 1 from cuda.kernels")
    before = resident(d)
    random.seed(3)
    names = [bomb(n) for n in (10, 50, 300)]
    names += [begin + 30000 * c for c in "PRKFANZITJLXDMSO" for begin in ("_Z1f", "_Z1fI")]
    names += ["_Z1f" + 10000 * "1aI", "_Z1fIJ" + 900 * "i" + "EEv" + 900 * "DpPT_"]
    for _ in range(500):
        name = list(random.choice([GEMM, bomb(4)]))
        for _ in range(random.randint(1, 5)):
            at = random.randrange(2, len(name))
            name[at:at + random.randint(0, 1)] = random.choice(["S_", "T_", "I", "E", "N", "Z",
                                                                 "9", "DpT_", "J", "\xff"])
        names.append("".join(name))
    file = world.tmp / "names"
    file.write_bytes(b"\n".join(n.encode("latin1") for n in names))
    d.do("for n in open(%r, 'rb').read().split(b'\\n'):\n    kernel(n.decode('latin1'))"
         % str(file))
    d.do("kernel('last')")
    d.wait_rows("select 1 from cuda.kernels where name = 'last'")
    wait_for(lambda: d.tracing("kernels") == [len(names) + 2], lambda: repr(d.tracing("kernels")))
    assert d.rows("select count(*), count(name), max(length(name)) <= 1023 from cuda.kernels") == [
        [len(names) + 2, len(names) + 2, 1]]
    assert resident(d) - before < 32 << 20


def resident(d):
    """Bytes."""
    return int(open("/proc/%d/statm" % d.target.pid).read().split()[1]) * 4096
