/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/job_variables.h - the variables of its environment by which a process is known to be a
 * rank of a job: those of torchrun, SLURM, Open MPI, PMI, PBS, LSF, and Kubernetes' indexed jobs.
 *
 * No state.  The core leaves them in a process's data, so that its rank is known when it is dead.
 */
#ifndef SDK_LIB_JOB_VARIABLES_H
#define SDK_LIB_JOB_VARIABLES_H

static const char *const job_variables[] = {"RANK",
                                            "OMPI_COMM_WORLD_RANK",
                                            "PMIX_RANK",
                                            "PMI_RANK",
                                            "SLURM_PROCID",
                                            "JOB_COMPLETION_INDEX",
                                            "LOCAL_RANK",
                                            "OMPI_COMM_WORLD_LOCAL_RANK",
                                            "MPI_LOCALRANKID",
                                            "SLURM_LOCALID",
                                            "GROUP_RANK",
                                            "NODE_RANK",
                                            "SLURM_NODEID",
                                            "TORCHELASTIC_RUN_ID",
                                            "TORCHELASTIC_RESTART_COUNT",
                                            "SLURM_JOB_ID",
                                            "SLURM_STEP_ID",
                                            "SLURM_ARRAY_JOB_ID",
                                            "SLURM_ARRAY_TASK_ID",
                                            "SLURM_JOB_NAME",
                                            "PMIX_NAMESPACE",
                                            "PBS_JOBID",
                                            "LSB_JOBID",
                                            "JOB_NAME",
                                            "ROLE_NAME",
                                            "MASTER_ADDR",
                                            "MASTER_PORT",
                                            "WORLD_SIZE"};
#define JOB_VARIABLES_N (sizeof(job_variables) / sizeof(job_variables[0]))

#endif
