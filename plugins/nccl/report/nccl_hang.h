/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/report/nccl_hang.h - who has not come to a collective, over the ranks of a job.
 * One thread.
 */
#ifndef NCCL_REPORT_NCCL_HANG_H
#define NCCL_REPORT_NCCL_HANG_H

#include <probing/report.h>

int nccl_hang_run(const struct probing_report_api *a, int argc, const char *const *argv);

#endif
