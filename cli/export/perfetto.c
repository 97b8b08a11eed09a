/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/perfetto.c - events as a Perfetto trace: packets of protocol buffers.
 *
 * One thread.  A trace is a row of fields 1, each a TracePacket (trace_packet.proto).  Of it we use
 *
 *     8 timestamp   10 sequence   6 clock snapshot   11 track event   60 track descriptor
 *
 * Each thread has a track, described before its first event, and so has each line that is no
 * thread's; a slice is a begin and an end, which the reader puts in order of time.  Times are UTC,
 * said by a snapshot of two clocks that are one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/export/export.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"
#include "sdk/lib/protobuf.h"

#define TRACKS_MAX 65536 /* more threads than a process can have at a time */
#define PACKET_MAX ((size_t)64 << 20)

enum { SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3 };
enum { CLOCK_UTC = 1, CLOCK_OF_TRACE = 6 }; /* builtin_clock.proto: REALTIME, BOOTTIME */
enum { SEQUENCE = 1 };                      /* we write one */
#define PROCESS_TRACKS (UINT64_C(1) << 32)  /* numbers of theirs: behind all those of threads */

struct track {
    int64_t pid, tid;
};

struct perfetto {
    struct buf packet, part, field; /* one message inside of the other */
    struct track *tracks;
    uint32_t n_tracks, room;
};

static int send_packet(struct perfetto *p, struct buf *out)
{
    protobuf_message(out, 1, &p->packet);
    return out->failed ? err_set(-ENOMEM, "no memory for an event") : 0;
}

int perfetto_begin(struct perfetto *p, struct buf *out)
{
    static const int clocks[] = {CLOCK_UTC, CLOCK_OF_TRACE};
    for (int i = 0; i < 2; i++) {
        protobuf_number(&p->field, 1, (uint64_t)clocks[i]);
        protobuf_number(&p->field, 2, 1000000000); /* the same moment */
        protobuf_message(&p->part, 1, &p->field);
    }
    protobuf_number(&p->packet, 10, SEQUENCE);
    protobuf_message(&p->packet, 6, &p->part);
    return send_packet(p, out);
}

/* The track of a process, which those of its threads are shown below. */
static int name_process(struct perfetto *p, int64_t pid, const char *name, struct buf *out)
{
    protobuf_number(&p->field, 1, (uint64_t)pid);
    if (name[0] != '\0')
        protobuf_text(&p->field, 6, name);
    protobuf_number(&p->part, 1, PROCESS_TRACKS + (uint64_t)pid);
    protobuf_message(&p->part, 3, &p->field);
    protobuf_number(&p->packet, 10, SEQUENCE);
    protobuf_message(&p->packet, 60, &p->part);
    return send_packet(p, out);
}

/* Describe the track whose number stands in p->part already: a thread's gets its numbers, a line's
 * its name and its process. */
static void describe_track(struct perfetto *p, const struct export_event *e)
{
    if (e->on_line) {
        protobuf_text(&p->part, 2, e->thread);
        protobuf_number(&p->part, 5, PROCESS_TRACKS + (uint64_t)e->pid);
        return;
    }
    protobuf_number(&p->field, 1, (uint64_t)e->pid);
    protobuf_number(&p->field, 2, (uint64_t)e->tid);
    if (e->thread[0] != '\0')
        protobuf_text(&p->field, 5, e->thread);
    protobuf_message(&p->part, 4, &p->field);
}

/* Number of a thread's or a line's track, which is described when it is new.  0: no memory. */
static uint64_t track_of(struct perfetto *p, const struct export_event *e, struct buf *out)
{
    int64_t pid = e->pid, tid = e->tid;
    bool known = false;
    for (uint32_t i = 0; i < p->n_tracks; i++)
        if (p->tracks[i].pid == pid && p->tracks[i].tid == tid)
            return i + 1;
    for (uint32_t i = 0; i < p->n_tracks && !known; i++)
        known = p->tracks[i].pid == pid;
    if (!known && name_process(p, pid, e->process, out) < 0)
        return 0;
    struct track *tracks =
        array_grow(p->tracks, p->n_tracks, &p->room, sizeof(*tracks), TRACKS_MAX);
    if (tracks == NULL)
        return 0;
    p->tracks = tracks;
    p->tracks[p->n_tracks++] = (struct track){pid, tid};
    protobuf_number(&p->part, 1, p->n_tracks);
    describe_track(p, e);
    protobuf_number(&p->packet, 10, SEQUENCE);
    protobuf_message(&p->packet, 60, &p->part);
    return send_packet(p, out) == 0 ? p->n_tracks : 0;
}

void perfetto_argument(struct perfetto *p, const char *name, const struct sql_value *v)
{
    struct buf text;

    protobuf_text(&p->field, 10, name);
    if (v->type == SQL_INT) {
        protobuf_number(&p->field, 4, (uint64_t)v->integer);
    } else if (v->type == SQL_DOUBLE) {
        protobuf_double(&p->field, 5, v->number);
    } else if (v->type == SQL_BOOL) {
        protobuf_number(&p->field, 2, v->boolean);
    } else {
        buf_init(&text, PACKET_MAX);
        answer_add_text(&text, v);
        protobuf_bytes(&p->field, 6, buf_text(&text), text.size);
        buf_done(&text);
    }
    protobuf_message(&p->part, 4, &p->field);
}

static int add_event(struct perfetto *p, uint64_t track, int type, int64_t at_ns, struct buf *out)
{
    protobuf_number(&p->part, 9, (uint64_t)type);
    protobuf_number(&p->part, 11, track);
    protobuf_number(&p->packet, 8, (uint64_t)at_ns);
    protobuf_number(&p->packet, 10, SEQUENCE);
    protobuf_message(&p->packet, 11, &p->part);
    return send_packet(p, out);
}

int perfetto_edge(struct perfetto *p, const struct export_event *e, bool opens, struct buf *out)
{
    uint64_t track = track_of(p, e, out);
    if (track == 0)
        return err_set(-ENOMEM, "no memory for a trace of so many threads");
    if (opens) {
        protobuf_bytes(&p->part, 22, e->kind, e->kind_n);
        protobuf_bytes(&p->part, 23, e->name, e->name_n);
    }
    return add_event(p, track, opens ? SLICE_BEGIN : SLICE_END, e->at_ns, out);
}

int perfetto_event(struct perfetto *p, const struct export_event *e, struct buf *out)
{
    struct buf arguments = p->part; /* a new track's description needs it */
    buf_init(&p->part, PACKET_MAX);
    uint64_t track = track_of(p, e, out);
    buf_done(&p->part);
    p->part = arguments;
    if (track == 0)
        return err_set(-ENOMEM, "no memory for a trace of so many threads");
    protobuf_bytes(&p->part, 22, e->kind, e->kind_n);
    protobuf_bytes(&p->part, 23, e->name, e->name_n);
    int rc = add_event(p, track, e->duration_ns >= 0 ? SLICE_BEGIN : INSTANT, e->at_ns, out);
    if (rc == 0 && e->duration_ns >= 0)
        rc = add_event(p, track, SLICE_END, e->at_ns + e->duration_ns, out);
    return rc;
}

struct perfetto *perfetto_new(void)
{
    struct perfetto *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return NULL;
    buf_init(&p->packet, PACKET_MAX);
    buf_init(&p->part, PACKET_MAX);
    buf_init(&p->field, PACKET_MAX);
    return p;
}

void perfetto_free(struct perfetto *p)
{
    if (p == NULL)
        return;
    buf_done(&p->packet);
    buf_done(&p->part);
    buf_done(&p->field);
    free(p->tracks);
    free(p);
}
