# SPDX-License-Identifier: Apache-2.0
"""What becomes of CUPTI's records, version by version; they are a stand-in's, laid out as the
headers of each version say."""
import pytest
from standin import VERSIONS, Device


@pytest.mark.parametrize("version", VERSIONS)
def test_every_kind_of_record_has_its_row(world, version):
    d = Device(world, "driver", "cupti", settings=["cuda.calls=0"], STANDIN_CUPTI=version)
    d.wait_state("tracing")
    d.do("kernel('gemm', ns=1500000); cupti.standin_copy(1, 4096, False, 90000, 10000, 70000); "
         "cupti.standin_set(512, 1000); cupti.standin_peer(1 << 40, 0, 1, 5000); "
         "cupti.standin_memory(1, 0x7f0000001000, 1 << 33, 25000); "
         "cupti.standin_sync(0, 2000000); cupti.standin_overhead(2 << 16, 3000)")
    assert d.wait_rows("select name, duration_ns, end_ns - start_ns, device, context, stream, grid,"
                       " block, registers, shared_bytes, queued_ns, launch_ns, graph_id from "
                       "cuda.kernels") == [["gemm", 1500000, 1500000, 0, 1, 7, "10x2x1", "256x1x1",
                                            32, 1124, 20000, 5000, None]]
    copies = d.wait_rows("select kind, bytes, duration_ns, src_kind, dst_kind, src_device, "
                         "dst_device, async from cuda.memcpy order by kind", 3)
    assert copies == [["HtoD", 4096, 70000, "pageable", "device", None, None, 0],
                      ["PtoP", 1 << 40, 5000, "device", "device", 0, 1, 1],
                      ["memset", 512, 1000, None, "device", None, None, 1]]
    assert d.wait_rows("select kind, memory_kind, bytes, address, duration_ns, device, async from "
                       "cuda.memory") == [["alloc", "device", 1 << 33, 0x7f0000001000, 25000, 0, 0]]
    assert d.wait_rows("select kind, duration_ns, context, stream, event_id from cuda.sync") == [
        ["stream", 2000000, 1, 7, None]]
    assert d.wait_rows("select kind, duration_ns from cuda.overhead") == [
        ["instrumentation", 3000]]
    calls = d.wait_rows("select name, api, duration_ns, result from cuda.runtime order by ts", 4)
    assert calls == [["cudaLaunchKernel", "runtime", 5000, 0], ["cudaMemcpy", "runtime", 90000, 0],
                     ["cudaMalloc", "runtime", 25000, 0],
                     ["cudaStreamSynchronize", "runtime", 2000000, 0]]
    assert d.tracing("records > 10", "unknown", "torn", "lost", "late", "kernels",
                     "kernel_rows") == [True, 0, 0, 0, 0, 1, 1]
