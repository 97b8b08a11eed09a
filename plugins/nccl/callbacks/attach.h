/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/callbacks/attach.h - which copy of this library has the events, and what is known of
 * NCCL.
 *
 * NCCL opens the file; the core opens a sealed copy of it, which the loader takes for another
 * library.  Both have the name libnccl-profiler.so (DT_SONAME), under which the loader gives the
 * one that came first: its recorder is used by both.  That is also the name that NCCL looks for
 * when NCCL_PROFILER_PLUGIN is not set, so a plugin that the core has loaded before the first
 * communicator is found without any variable.
 */
#ifndef NCCL_ATTACH_H
#define NCCL_ATTACH_H

#include <probing/plugin.h>

#include "record/recorder.h"

#define ATTACH_LIBRARY "libnccl-profiler.so"
#define ATTACH_DOOR "probing_nccl_recorder_v1"

/* Exported: the recorder of the copy that it is in. */
PROBING_EXPORT struct recorder *probing_nccl_recorder_v1(void);

/* The recorder of the copy that came first; this one's own where there is no other, or the other is
 * of another build (*ret_stranger, which may be NULL, says so).  Any thread. */
struct recorder *attach_recorder(bool *ret_stranger);

enum nccl_state {
    NCCL_ACTIVE,  /* events come, or will with the next operation */
    NCCL_WAITING, /* NCCL has not called the profiler yet, or is not there */
    NCCL_LATE,    /* it made communicators before this library was there */
    NCCL_REFUSED  /* it has another profiler, or is too old */
};

const char *nccl_state_name(enum nccl_state state);
/* How it stands, and why, in words: one line, what to do with it. */
enum nccl_state nccl_look(struct recorder *r, char *ret_why, size_t size);

#endif
