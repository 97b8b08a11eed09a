/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/library.h - CUPTI as a file that is found at run time, and its functions.
 *
 * Threads: one at a time.
 * Types and numbers are those of cupti_activity.h and cupti_callbacks.h, which stay as they are
 * from one version to the next.
 */
#ifndef CUDA_CUPTI_LIBRARY_H
#define CUDA_CUPTI_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUPTI_API_LEAST 17u /* CUDA 11.6: the records of older ones were not looked at */

enum { /* results */
       CUPTI_SUCCESS = 0,
       CUPTI_MAX_LIMIT_REACHED = 12,
       CUPTI_NOT_INITIALIZED = 15,
       CUPTI_INVALID_KIND = 21,
       CUPTI_MULTIPLE_SUBSCRIBERS = 39,
       CUPTI_UNKNOWN = 999
};

enum { CUPTI_FLUSH_FORCED = 1 };
enum { CUPTI_THREADS_BY_PTHREAD = 0, CUPTI_THREADS_BY_SYSTEM = 1 };
enum { CUPTI_DOMAIN_DRIVER = 1, CUPTI_DOMAIN_RUNTIME = 2 };

typedef void cupti_requested(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void cupti_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                             size_t valid);
/* The same for subscribers (13.2 and newer); info: nothing of it is needed. */
typedef void cupti_requested_v2(uint8_t **buffer, size_t *size, size_t *max_records, void *info);
typedef void cupti_completed_v2(uint8_t *buffer, size_t size, size_t valid, void *info);
typedef void cupti_called(void *arg, int domain, uint32_t id, const void *data);

struct cupti_params { /* CUpti_SubscriberParams */
    size_t size;      /* of what is filled in: 13.0 and 13.1 end before `share` */
    const char *name;
    char *other; /* who was there before */
    size_t other_size;
    uint8_t share, padding[7];
};

struct cupti {
    char path[512];   /* of the file */
    uint32_t version; /* CUPTI_API_VERSION: 18, or 130001 for 13.0.1; 0: not asked yet */
    int (*GetVersion)(uint32_t *version);
    int (*GetTimestamp)(uint64_t *now);
    int (*GetResultString)(int result, const char **text);
    int (*GetCallbackName)(int domain, uint32_t id, const char **name);
    int (*ActivityEnable)(int kind);
    int (*ActivityDisable)(int kind);
    int (*ActivityRegisterCallbacks)(cupti_requested *requested, cupti_completed *completed);
    int (*ActivityGetNextRecord)(uint8_t *buffer, size_t valid, uint8_t **record);
    int (*ActivityGetNumDroppedRecords)(void *context, uint32_t stream, size_t *dropped);
    int (*ActivityFlushAll)(uint32_t flag);
    /* NULL where this version has none: */
    int (*ActivityEnableAndDump)(int kind);
    int (*SetThreadIdType)(int type);
    int (*GetThreadIdType)(int *type);
    int (*ActivityEnableDriverApi)(uint32_t id, uint8_t on);  /* 12.5 */
    int (*ActivityEnableRuntimeApi)(uint32_t id, uint8_t on); /* likewise */
    int (*Unsubscribe)(void *subscriber);
    int (*Subscribe_v2)(void **subscriber, cupti_called *called, void *arg, /* 13.0 */
                        struct cupti_params *params);
    int (*ActivityEnable_v2)(void *subscriber, int kind, void *config); /* this and below: 13.2 */
    int (*ActivityDisable_v2)(void *subscriber, int kind, void *config);
    int (*ActivityEnableAndDump_v2)(void *subscriber, int kind, void *config);
    int (*ActivityRegisterCallbacks_v2)(void *subscriber, cupti_requested_v2 *requested,
                                        cupti_completed_v2 *completed);
    int (*ActivityGetAttribute_v2)(void *subscriber, int attribute, size_t *size, void *value);
    int (*ActivitySetAttribute_v2)(void *subscriber, int attribute, size_t *size, void *value);
    int (*ActivityGetEnabledKinds)(void *subscriber, int *kinds, uint32_t *size, uint32_t *n);
    int (*GetTimestamp_v2)(void *subscriber, uint64_t *now); /* this and below: 13.3 */
    int (*ActivityGetNextRecord_v2)(void *subscriber, uint8_t *buffer, size_t valid,
                                    uint8_t **record);
    int (*ActivityGetNumDroppedRecords_v2)(void *subscriber, void *context, uint32_t stream,
                                           size_t *dropped);
};

/* Has the process loaded CUDA's driver, and begun to use it?  It is never loaded or initialised
 * here.  NULL: it has; else why not, as a clause.  ret_unloaded: it is not even loaded. */
const char *driver_missing(bool *ret_unloaded);

/* Find the CUPTI that this process uses: one that is mapped, else the one beside its CUDA runtime
 * (torch's wheels, a toolkit), under CUDA_HOME or CUDA_PATH, or where ld.so looks.  0; -ENOENT and
 * `why`: none was found, or it lacks a function. */
int cupti_find(struct cupti *ret, char *why, size_t size);

/* Give the name of a result: "CUPTI_ERROR_NOT_INITIALIZED (15)".  CUPTI 13.3 and newer cannot tell
 * without a driver: then it is the number. */
const char *cupti_text(const struct cupti *c, int result, char *text, size_t size);

/* How many libraries were loaded so far; 0: not known. */
uint64_t library_loads(void);

#endif
