/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/cuda/libraries/standin_driver.c - a stand-in for libcuda.so.1: NOT CUDA's driver.  A
 * process that has it mapped looks as if it used CUDA; nothing else of a driver is here.
 * STANDIN_DRIVER: its version, 12040 for CUDA 12.4.
 */
#include <stdlib.h>

static int initialised;

__attribute__((visibility("default"))) int cuInit(unsigned flags);
__attribute__((visibility("default"))) int cuDeviceGetCount(int *ret);
__attribute__((visibility("default"))) int cuDriverGetVersion(int *ret);

int cuInit(unsigned flags)
{
    (void)flags;
    initialised = 1;
    return 0;
}

int cuDeviceGetCount(int *ret)
{
    *ret = initialised ? 2 : 0;
    return initialised ? 0 : 3; /* CUDA_ERROR_NOT_INITIALIZED */
}

int cuDriverGetVersion(int *ret)
{
    const char *version = getenv("STANDIN_DRIVER");
    *ret = version ? atoi(version) : 0;
    return 0;
}
