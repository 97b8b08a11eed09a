# SPDX-License-Identifier: Apache-2.0
"""Our structs of NCCL's profiler interface against NCCL's own headers, where these are at hand: a
program that includes both compiles only if sizes, offsets and numbers are the same."""
import os
import subprocess

from world import ROOT

DESCR = {  # version -> {our field: theirs}, of startEvent()'s descriptor
    1: "type parent:parentObj rank coll.name coll.comm_hash:coll.commHash coll.seq:coll.seqNumber "
       "coll.func coll.count coll.root coll.datatype coll.algo coll.proto p2p.func p2p.datatype "
       "p2p.comm_hash:p2p.commHash p2p.count p2p.peer",
    2: "type parent:parentObj rank coll.comm_hash:coll.commHash coll.seq:coll.seqNumber coll.func "
       "coll.count coll.root coll.datatype coll.algo coll.proto p2p.func p2p.datatype p2p.count "
       "p2p.peer",
    3: "type parent:parentObj rank coll.comm_hash:coll.commHash coll.seq:coll.seqNumber coll.func "
       "coll.count coll.root coll.datatype coll.n_max_channels:coll.nMaxChannels coll.algo "
       "coll.proto p2p.func p2p.count p2p.peer kernel_ch.channel:kernelCh.channelId "
       "net_plugin.id:netPlugin.id net_plugin.data:netPlugin.data",
    4: "type parent:parentObj rank coll.seq:coll.seqNumber coll.func coll.count coll.root "
       "coll.datatype coll.n_channels:coll.nChannels coll.algo coll.proto p2p.func p2p.datatype "
       "p2p.count p2p.peer p2p.n_channels:p2p.nChannels kernel_ch.timer_ns:kernelCh.pTimer "
       "net_plugin.id:netPlugin.id net_plugin.data:netPlugin.data",
    5: "type parent:parentObj rank coll.seq:coll.seqNumber coll.func coll.count coll.root "
       "coll.datatype coll.n_channels:coll.nChannels coll.algo coll.proto p2p.func p2p.datatype "
       "p2p.count p2p.peer p2p.n_channels:p2p.nChannels kernel_ch.timer_ns:kernelCh.pTimer "
       "net_plugin.id:netPlugin.id net_plugin.data:netPlugin.data",
    6: "type parent:parentObj rank coll.seq:coll.seqNumber coll.func coll.count coll.root "
       "coll.datatype coll.n_channels:coll.nChannels coll.algo coll.proto p2p.func p2p.datatype "
       "p2p.count p2p.peer p2p.n_channels:p2p.nChannels kernel_ch.timer_ns:kernelCh.pTimer "
       "net_plugin.id:netPlugin.id net_plugin.data:netPlugin.data ce_coll.seq:ceColl.seqNumber "
       "ce_coll.func:ceColl.func ce_coll.count:ceColl.count ce_coll.root:ceColl.root "
       "ce_coll.datatype:ceColl.datatype ce_coll.stream:ceColl.stream",
}
DESCR[7] = DESCR[6] + (
    " coll.kernel_variant:coll.kernelVariant coll.is_symmetric:coll.isSymColl "
    "coll.user_tag:coll.userTag p2p.user_tag:p2p.userTag ce_coll.user_tag:ceColl.userTag")
ALL = "proxy_op.pid:proxyOp.pid proxy_op.channel:proxyOp.channelId proxy_op.peer:proxyOp.peer " \
      "proxy_op.n_steps:proxyOp.nSteps proxy_op.chunk_size:proxyOp.chunkSize " \
      "proxy_op.is_send:proxyOp.isSend proxy_step.step:proxyStep.step"
NUMBERS = {
    "NCCL_COLL": "ncclProfileColl", "NCCL_P2P": "ncclProfileP2p",
    "NCCL_PROXY_OP": "ncclProfileProxyOp", "NCCL_PROXY_STEP": "ncclProfileProxyStep",
    "NCCL_KERNEL_CH": "ncclProfileKernelCh", "NCCL_NET_PLUGIN": "ncclProfileNetPlugin",
    "NCCL_CE_COLL": "ncclProfileCeColl", "NCCL_CE_BATCH": "ncclProfileCeBatch",
    "NCCL_OP_RECV_DONE": "ncclProfilerProxyOpRecvDone",
    "NCCL_STEP_SEND_GPU_WAIT": "ncclProfilerProxyStepSendGPUWait",
    "NCCL_STEP_SEND_WAIT": "ncclProfilerProxyStepSendWait",
    "NCCL_STEP_RECV_WAIT": "ncclProfilerProxyStepRecvWait",
    "NCCL_STEP_RECV_FLUSH_WAIT": "ncclProfilerProxyStepRecvFlushWait",
    "NCCL_STEP_RECV_GPU_WAIT": "ncclProfilerProxyStepRecvGPUWait",
    "NCCL_STEP_SEND_PEER_WAIT": "ncclProfilerProxyStepSendPeerWait_v4",
    "NCCL_OP_IN_PROGRESS": "ncclProfilerProxyOpInProgress_v4",
    "NCCL_NET_UPDATE": "ncclProfilerNetPluginUpdate",
    "NCCL_KERNEL_CH_STOP": "ncclProfilerKernelChStop",
    "NCCL_NET_IB": "NCCL_PROFILER_NET_TYPE_IB", "NCCL_NET_IB_QP": "ncclProfileQp",
}
NUMBERS_7 = {"NCCL_KERNEL_PHASE": "ncclProfileKernelPhase",
             "NCCL_KERNEL_PHASE_STOP": "ncclProfilerKernelPhaseStop"}
MEMBERS = {"init": "init", "start_event": "startEvent", "stop_event": "stopEvent",
           "record_event_state": "recordEventState", "finalize": "finalize", "name": "name"}


def same_offset(ours, a, theirs, b):
    return "_Static_assert(offsetof(%s, %s) == offsetof(%s, %s), \"%s %s\");" % (
        ours, a, theirs, b, ours, a)


def text(newest):
    lines = []
    for version, fields in DESCR.items():
        if version > newest:
            continue
        ours = "struct nccl_descr_v%d" % (6 if version == 5 else version)
        theirs = "ncclProfilerEventDescr_v%d_t" % version
        for field in (fields + " " + ALL).split():
            a, _, b = field.partition(":")
            lines.append(same_offset(ours, a, theirs, b or a))
        # NCCL's structs are read up to our size at most.
        if version != 5:
            lines.append("_Static_assert(sizeof(%s) == sizeof(%s), \"%s\");" % (ours, theirs, ours))
        profiler = "struct nccl_profiler_v%d" % version, "ncclProfiler_v%d_t" % version
        lines += [same_offset(profiler[0], a, profiler[1], b) for a, b in MEMBERS.items()]
        lines.append("_Static_assert(sizeof(%s) == sizeof(%s), \"size\");" % profiler)
    for a, b in (("proxy_op.trans_size", "proxyOp.transSize"),):
        lines.append(same_offset("union nccl_state_v1", a, "ncclProfilerEventStateArgs_v3_t", b))
    for a, b in (("proxy_step.trans_size", "proxyStep.transSize"),
                 ("kernel_ch.timer_ns", "kernelCh.pTimer")):
        lines.append(same_offset("union nccl_state_v4", a, "ncclProfilerEventStateArgs_v6_t", b))
    for field in "device wr_id opcode qpNum:qp_num length".split():
        b, _, a = field.partition(":")
        lines.append(same_offset("struct nccl_net_ib_v1", "qp." + (a or b),
                                 "ncclProfilerNetIbDescr_v1_t", "qp." + b))
    numbers = dict(NUMBERS, **(NUMBERS_7 if newest >= 7 else {}))
    lines += ["_Static_assert((int)%s == (int)%s, \"%s\");" % (a, b, a) for a, b in numbers.items()]
    return "\n".join(lines)


def compare(headers, tmp):
    """headers: of NCCL 2.29 or newer."""
    newest = 7 if os.path.exists(os.path.join(headers, "profiler_v7.h")) else 6
    source = tmp / "layouts.c"
    source.write_text("""#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "err.h"
#include "profiler.h"
#define NCCL_COLL EVENT_COLL /* NCCL's log has these names for something else */
#define NCCL_P2P EVENT_P2P
#include "plugins/nccl/callbacks/profiler_abi.h"
""" + text(newest) + "\n")
    done = subprocess.run(["cc", "-std=gnu17", "-fsyntax-only", "-I", headers, "-I", str(ROOT),
                           str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
