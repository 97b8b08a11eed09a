#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""CUPTI and a GPU without anything of ours, nor torch, nor a compiler: what a real CUPTI answers,
and the buffers that it writes, kept as data for tests (test_cuda_recorded.py plays them).

usage: raw_cupti.py early_codes LIBCUPTI    what it answers before the driver is initialised
       raw_cupti.py codes LIBCUPTI          and after that, a line of JSON for each question
       raw_cupti.py shared_codes LIBCUPTI   likewise, of several subscribers
       raw_cupti.py record LIBCUPTI FILE    FILE.bin and FILE.json: the buffers of a small program
       raw_cupti.py loop                    kernels, as standard input says

The program is CUDA's driver alone, by ctypes; its kernel is PTX, which the driver compiles.
"""
import ctypes as c
import json
import os
import sys
import time

PTX = b"""
.version 6.4
.target sm_75
.address_size 64
.visible .entry probing_add(.param .u64 values, .param .u32 n)
{
    .reg .pred %q;
    .reg .b32 %r<6>;
    .reg .b64 %d<4>;
    .reg .f32 %f<2>;
    ld.param.u64 %d1, [values];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %q, %r5, %r1;
    @%q bra done;
    cvta.to.global.u64 %d2, %d1;
    mul.wide.s32 %d3, %r5, 4;
    add.s64 %d2, %d2, %d3;
    ld.global.f32 %f1, [%d2];
    add.f32 %f1, %f1, 0f3F800000;
    st.global.f32 [%d2], %f1;
done:
    ret;
}
"""
KINDS = {"memcpy": 1, "memset": 2, "driver": 4, "runtime": 5, "kernel": 10, "overhead": 17,
         "memcpy2": 22, "synchronization": 38, "memory2": 49}
NAME_AT = 104  # of a kernel's record
BUFFER = 1 << 18
REQUESTED = c.CFUNCTYPE(None, c.POINTER(c.c_void_p), c.POINTER(c.c_size_t), c.POINTER(c.c_size_t))
COMPLETED = c.CFUNCTYPE(None, c.c_void_p, c.c_uint32, c.c_void_p, c.c_size_t, c.c_size_t)
REQUESTED_V2 = c.CFUNCTYPE(None, c.POINTER(c.c_void_p), c.POINTER(c.c_size_t),
                           c.POINTER(c.c_size_t), c.c_void_p)
COMPLETED_V2 = c.CFUNCTYPE(None, c.c_void_p, c.c_size_t, c.c_size_t, c.c_void_p)
CALLED = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_uint32, c.c_void_p)


class Device:
    """The first device, its primary context, one kernel and memory for it."""

    def __init__(self):
        self.cu = c.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        version, self.device, self.context = c.c_int(), c.c_int(), c.c_void_p()
        self.call("cuDriverGetVersion", c.byref(version))
        self.version = version.value
        self.call("cuDeviceGet", c.byref(self.device), 0)
        self.begin()

    def begin(self):
        self.module, self.function, self.stream = c.c_void_p(), c.c_void_p(), c.c_void_p()
        self.values = c.c_uint64()
        self.call("cuDevicePrimaryCtxRetain", c.byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuModuleLoadData", c.byref(self.module), PTX)
        self.call("cuModuleGetFunction", c.byref(self.function), self.module, b"probing_add")
        self.call("cuStreamCreate", c.byref(self.stream), 1)
        self.call("cuMemAlloc_v2", c.byref(self.values), c.c_size_t(1 << 20))

    def call(self, name, *args):
        rc = getattr(self.cu, name)(*args)
        if rc:
            raise RuntimeError("%s: error %d" % (name, rc))

    def kernel(self, stream=None):
        n = c.c_uint32(1 << 18)
        args = (c.c_void_p * 2)(c.cast(c.byref(self.values), c.c_void_p),
                                c.cast(c.byref(n), c.c_void_p))
        self.call("cuLaunchKernel", self.function, 1024, 1, 1, 256, 1, 1, 0,
                  stream or self.stream, args, None)

    def synchronize(self):
        self.call("cuCtxSynchronize")

    def all_kinds(self):
        """Kernels on two streams, copies, a set, memory, a graph."""
        host = c.create_string_buffer(1 << 20)
        second, graph, ready, more = c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_uint64()
        self.call("cuStreamCreate", c.byref(second), 1)
        self.call("cuMemAlloc_v2", c.byref(more), c.c_size_t(1 << 16))
        self.call("cuMemcpyHtoD_v2", self.values, host, c.c_size_t(1 << 20))
        for _ in range(10):
            self.kernel()
            self.kernel(second)
        self.call("cuMemsetD8Async", self.values, 0, c.c_size_t(4096), self.stream)
        self.call("cuMemcpyDtoHAsync_v2", host, self.values, c.c_size_t(1 << 20), self.stream)
        self.call("cuStreamSynchronize", self.stream)
        self.call("cuStreamBeginCapture_v2", self.stream, 2)
        for _ in range(3):
            self.kernel()
        self.call("cuStreamEndCapture", self.stream, c.byref(graph))
        self.call("cuGraphInstantiateWithFlags", c.byref(ready), graph, c.c_uint64(0))
        for _ in range(2):
            self.call("cuGraphLaunch", ready, self.stream)
        self.synchronize()
        self.call("cuMemFree_v2", more)

    def reset(self):
        """As cudaDeviceReset(): the context and all in it are gone, and made anew."""
        self.call("cuDevicePrimaryCtxReset_v2", self.device)
        self.begin()


class Params(c.Structure):
    """CUpti_SubscriberParams."""
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("other", c.c_char_p),
                ("other_size", c.c_size_t), ("share", c.c_uint8), ("padding", c.c_uint8 * 7)]


class Cupti:
    """CUPTI, whose buffers are kept as they come: [bytes].  subscriber: as one of several."""

    def __init__(self, path):
        self.lib = c.CDLL(path)
        version = c.c_uint32()
        self.version_result = self.lib.cuptiGetVersion(c.byref(version))
        self.version = version.value
        self.buffers, self.given = [], {}
        self.functions = (REQUESTED(self.give), COMPLETED(
            lambda context, stream, at, size, valid: self.take(at, valid)),
            REQUESTED_V2(lambda at, size, most, info: self.give(at, size, most)),
            COMPLETED_V2(lambda at, size, valid, info: self.take(at, valid)),
            CALLED(lambda *words: None))

    def give(self, ret, ret_size, ret_most):
        room = c.create_string_buffer(BUFFER + 8)
        at = (c.addressof(room) + 7) & ~7
        self.given[at] = room
        ret[0], ret_size[0], ret_most[0] = at, BUFFER, 0

    def take(self, at, valid):
        self.buffers.append((at, valid))

    def join(self, name, share):
        """(result, subscriber, who was there)"""
        handle, other = c.c_void_p(), c.create_string_buffer(64)
        p = Params(c.sizeof(Params) if self.version >= 130200 else Params.share.offset, name,
                   c.cast(other, c.c_char_p), 64, share)
        rc = self.lib.cuptiSubscribe_v2(c.byref(handle), self.functions[4], None, c.byref(p))
        return rc, handle, other.value.decode(errors="replace")

    def sharing(self):
        """(result, CUPTI_ACTIVITY_ATTR_MULTIPLE_SUBSCRIBER_STATE)"""
        value, size = c.c_uint8(255), c.c_size_t(1)
        return self.lib.cuptiActivityGetAttribute_v2(None, 12, c.byref(size),
                                                     c.byref(value)), value.value

    def start(self, subscriber=None):
        """{what: result}"""
        lib, said = self.lib, {}
        if subscriber:
            size, system = c.c_size_t(4), c.c_int(1)
            said["register"] = lib.cuptiActivityRegisterCallbacks_v2(subscriber,
                                                                     *self.functions[2:4])
            said["threads"] = lib.cuptiActivitySetAttribute_v2(subscriber, 21, c.byref(size),
                                                               c.byref(system))
        else:
            said["register"] = lib.cuptiActivityRegisterCallbacks(*self.functions[:2])
            said["threads"] = lib.cuptiSetThreadIdType(1)
        for name, kind in KINDS.items():
            said[name] = (lib.cuptiActivityEnable_v2(subscriber, kind, None) if subscriber
                          else lib.cuptiActivityEnable(kind))
        if hasattr(lib, "cuptiActivityEnableAndDump"):
            said["contexts"] = (lib.cuptiActivityEnableAndDump_v2(subscriber, 9, None)
                                if subscriber else lib.cuptiActivityEnableAndDump(9))
        return said

    def stop(self, subscriber=None):
        for kind in list(KINDS.values()) + [9]:
            if subscriber:
                self.lib.cuptiActivityDisable_v2(subscriber, kind, None)
            else:
                self.lib.cuptiActivityDisable(kind)
        return self.lib.cuptiActivityFlushAll(1)

    def records(self, subscriber=None):
        """[(buffer's number, offset, kind)], and what ended the walk through each."""
        found, ends = [], []
        for n, (at, valid) in enumerate(self.buffers):
            record = c.c_void_p()
            while True:
                if subscriber and hasattr(self.lib, "cuptiActivityGetNextRecord_v2"):
                    rc = self.lib.cuptiActivityGetNextRecord_v2(
                        subscriber, c.c_void_p(at), c.c_size_t(valid), c.byref(record))
                else:
                    rc = self.lib.cuptiActivityGetNextRecord(c.c_void_p(at), c.c_size_t(valid),
                                                             c.byref(record))
                if rc:
                    ends.append(rc)
                    break
                found.append((n, record.value - at, c.c_uint32.from_address(record.value).value))
        return found, ends


def say(question, **answer):
    print(json.dumps(dict(question=question, **answer)), flush=True)


def counted(records):
    kinds = [kind for _, _, kind in records[0]]
    return {str(kind): kinds.count(kind) for kind in sorted(set(kinds))}


def early_codes(path):
    """In a process of their own: 13.2 has crashed here, where there was no driver."""
    cupti = Cupti(path)
    say("version, early", path=path, result=cupti.version_result, version=cupti.version)
    say("enable before the driver is initialised", result=cupti.lib.cuptiActivityEnable(10))


def codes(path):
    device = Device()
    say("driver", version=device.version)
    cupti = Cupti(path)
    lib = cupti.lib
    say("version", path=path, result=cupti.version_result, version=cupti.version)
    say("the old interface", results=cupti.start())
    device.all_kinds()
    say("flush", result=cupti.stop())
    say("records", kinds=counted(cupti.records()), ends=cupti.records()[1])
    one, two = c.c_void_p(), c.c_void_p()
    first = lib.cuptiSubscribe(c.byref(one), cupti.functions[4], None)
    second = lib.cuptiSubscribe(c.byref(two), cupti.functions[4], None)
    say("subscribe twice", first=first, second=second)
    if hasattr(lib, "cuptiSubscribe_v2"):
        say("who is there", result=cupti.join(b"probing asks", 0)[0::2])
    say("the activities beside a subscriber", results=cupti.start(), flush=cupti.stop())
    say("unsubscribe", result=lib.cuptiUnsubscribe(one))


def shared_codes(path):
    """The questions about several subscribers, in a process of their own."""
    device = Device()
    a, b = Cupti(path), Cupti(path)
    if a.version < 130200:
        return
    say("sharing, before", result=a.sharing())
    rc, one, other = a.join(b"one", 1)
    say("first subscriber", result=rc, other=other, sharing=a.sharing())
    rc2, two, other = b.join(b"two", 1)
    say("second subscriber", result=rc2, other=other)
    if rc or rc2:
        return
    say("first starts", results=a.start(one))
    say("second starts", results=b.start(two))
    device.all_kinds()
    say("stop", results=[a.stop(one), b.stop(two)])
    say("records of each", first=counted(a.records(one)), second=counted(b.records(two)))
    rc, third, other = Cupti(path).join(b"alone", 0)
    say("one that does not share", result=rc, other=other)
    say("the old interface beside them", results=Cupti(path).start())
    say("unsubscribe", results=[a.lib.cuptiUnsubscribe(s) for s in (one, two)])
    say("sharing, after", result=a.sharing())
    again = Cupti(path)
    rc, three, other = again.join(b"three", 1)
    say("subscribe again", result=rc, other=other, results=again.start(three) if rc == 0 else None)
    say("unsubscribe", result=a.lib.cuptiUnsubscribe(three))
    old = Cupti(path)
    say("the old interface after them", results=old.start(), flush=old.stop())
    rc, four, other = a.join(b"four", 1)
    say("subscribe after the old interface", result=rc, other=other, sharing=a.sharing())


def save(cupti, file):
    """FILE.bin has the buffers one behind the other; FILE.json says where they and their records
    are, and what each kernel's name was, to which its record only points."""
    records, ends = cupti.records()
    names = {}
    for n, offset, kind in records:
        if kind == KINDS["kernel"]:
            at = c.c_uint64.from_address(cupti.buffers[n][0] + offset + NAME_AT).value
            names[str(at)] = c.string_at(at).decode(errors="replace") if at else None
    now = c.c_uint64()
    cupti.lib.cuptiGetTimestamp(c.byref(now))
    with open(file + ".bin", "wb") as out:
        for at, valid in cupti.buffers:
            out.write(c.string_at(at, valid))
    with open(file + ".json", "w") as out:
        json.dump({"version": cupti.version, "timestamp": now.value, "pid": os.getpid(),
                   "buffers": [valid for _, valid in cupti.buffers], "records": records,
                   "ends": ends, "names": names}, out)
    return records


def record(path, file):
    device = Device()
    cupti = Cupti(path)
    cupti.start()
    device.all_kinds()
    cupti.stop()
    say("recorded", file=file, buffers=len(cupti.buffers), kinds=counted((save(cupti, file), [])))


def loop():
    """A line of input is Python that may say kernels(N, A_SECOND), reset() and all_kinds()."""
    device = Device()

    def kernels(n, a_second=1000):
        begin = time.monotonic()
        for i in range(n):
            device.kernel()
            while time.monotonic() < begin + i / a_second:
                pass
        device.synchronize()
        return time.monotonic() - begin
    print("ready", os.getpid(), flush=True)
    for line in sys.stdin:
        said = eval(line, {"kernels": kernels, "reset": device.reset, "os": os, "sys": sys,
                           "all_kinds": device.all_kinds})
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    {"early_codes": early_codes, "codes": codes, "shared_codes": shared_codes, "record": record,
     "loop": loop}[sys.argv[1]](*sys.argv[2:])
