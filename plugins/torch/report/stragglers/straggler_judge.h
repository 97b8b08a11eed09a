/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_judge.h - which rank of a job comes late, by the parts
 * of each rank's steps.
 *
 * Pure: numbers in, findings out; one thread.  No clock is compared with another one.  All times
 * are seconds of one rank's own clock, counted from what all ranks share: the end of the collective
 * operation in which they wait for each other.
 *
 * A stall of one rank is a wait on all others, so long parts tell nothing by themselves.  For each
 * step the parts are added up in the order in which a rank goes through them, and at each boundary
 * the rank that is furthest behind pushes the frontier: what it is later than the middle one of the
 * ranks is charged to it, and to the part in which it fell behind.  Ranks that wait for it are
 * level with each other again behind the wait, and are charged nothing.
 *
 * A rank is named only by the rules below (JUDGE_...); of what is too little, or does not belong
 * together, it is said.
 */
#ifndef TORCH_REPORT_STRAGGLER_JUDGE_H
#define TORCH_REPORT_STRAGGLER_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

/* In the order in which they come between two waits.  The optimizer's is of the step before: it
 * steps behind the wait. */
enum judge_part {
    PART_OPTIMIZER,
    PART_EVALUATION, /* models that are called outside of training */
    PART_OTHER,
    PART_DATA,
    PART_FORWARD,
    PART_BACKWARD,
    PART_COMM, /* waiting, and communication itself */
    N_PARTS
};

enum judge_sign {
    SIGN_CPU_THROTTLED, /* share of the time that the cgroup was kept from running */
    SIGN_CPU_TAKEN,     /* times a second that another task was given its processor */
    SIGN_CPU_USED,      /* cores in use; a rank that uses few does not compute, it waits */
    SIGN_PAGE_FAULTS,   /* a second, of those that needed a disk */
    SIGN_RUNQ_WAIT,     /* seconds a second that its threads were ready and did not run, together */
    SIGN_NICE,          /* of its main thread */
    SIGN_FEW_CPUS,      /* processors that it may run on: fewer than the others is the sign */
    SIGN_CPU_WAIT,      /* share of the time that a task of its host waited for a processor */
    SIGN_MEMORY_WAIT,   /* share of the time that a task waited for memory */
    SIGN_DISK_WAIT,     /* ... for a disk */
    SIGN_DISK_READ,     /* bytes a second from devices */
    SIGN_GC,            /* share of the time in Python's garbage collector */
    SIGN_STOPPED,       /* share of the time that the whole process stood still */
    SIGN_NETWORK_BAD,   /* bad and lost packets a second */
    SIGN_STEAL,         /* share of its host's processors that a hypervisor took */
    SIGN_SWAP,          /* bytes a second swapped in on its host */
    SIGN_RETRANS,       /* share of its host's TCP segments that were sent again */
    N_SIGNS
};

#define JUDGE_STEPS_MIN 30     /* fewer say nothing */
#define JUDGE_EPISODE_STEPS 20 /* a rank that is late all the time is so for at least so many, */
#define JUDGE_EPISODE_SHARE 5  /* and for one in so many of those looked at */
#define JUDGE_LATE_SHARE 0.05 /* of a step, that it is later than the others in most of its steps */
#define JUDGE_LATE_SIGMA 4.0  /* of how ranks differ from each other, and of its own noise */
#define JUDGE_EVENT_SHARE 0.25  /* of a step, that it is late now and then */
#define JUDGE_EVENT_GAP 3.0     /* its events together, against those of any rank not named */
#define JUDGE_FEW_GAP 8.0       /* likewise of six at most, */
#define JUDGE_SINGLE_SHARE 1.0  /* and of a step, where there are only one or two */
#define JUDGE_LOST_SEC 0.1      /* that it is late by in all, for any name, */
#define JUDGE_LOST_SHARE 0.01   /* and of the time of all steps, where it is so in most of them, */
#define JUDGE_RARE_SHARE 0.001  /* or in few */
#define JUDGE_COMM_SHARE 0.1    /* of a step in communication of the rank that comes last */
#define JUDGE_RUNQ_WAIT 0.1     /* seconds a second without a processor, more than the others */
#define JUDGE_RUNQ_ALONE 0.3    /* so many at least where neither nice nor affinity explains it, */
#define JUDGE_RUNQ_GAP 3.0      /* and so many times any other's */
#define JUDGE_RTT_GAP 4.0       /* a round trip that is so many times the usual one is slow, */
#define JUDGE_RTT_SEC 0.001     /* from there on, by the shortest of five minutes; by the newest, */
#define JUDGE_RTT_NOW_SEC 0.004 /* which load swells, from there on */
#define JUDGE_LOST_SHARE 0.01   /* of a link's segments that are sent again */
#define JUDGE_LOST_SEGS 20      /* and so many at least */
#define JUDGE_NAMED_MAX 64

struct judge_step {       /* of one rank; parts that did not occur are 0 */
    float whole;          /* seconds; NAN: this rank has no such step */
    float parts[N_PARTS]; /* seconds; optimizer: of this step, behind its wait */
};

/* Between two machines, of what their ranks' connections say.  NAN: not known. */
struct judge_link {
    uint32_t a, b;                /* nodes, a < b */
    double now_sec, shortest_sec; /* round trips: smoothed, lately; and of five minutes */
    double again, sent;           /* segments sent again, of so many, the way on which more were */
};

struct judge_job {
    uint32_t n_ranks, n_steps;
    const struct judge_step *steps; /* [n_ranks][n_steps], step i of all ranks is the same one */
    const int64_t *numbers;         /* [n_steps] of the steps, rising; where one is missing between
                                     * two, all ranks' steps there were of usual length */
    const double *signs;            /* [n_ranks][N_SIGNS], NAN: not known; or NULL */
    /* Backwards whose own time is known, [n_ranks][n_backwards], seconds, NAN: not this one; and
     * their communication that nothing hid, as waiting is hidden in a backward.  Both or none. */
    const float *backwards, *waits;
    uint32_t n_backwards;
    /* Links between the ranks: ranks of one node are on one machine.  Each pair of nodes at most
     * once; pairs that exchange nothing are not there.  NULL: not known. */
    const struct judge_link *links;
    const uint32_t *nodes; /* [n_ranks] < n_nodes */
    uint32_t n_links, n_nodes;
    bool
        stages; /* ranks pass data on to each other, as stages of a pipeline: they differ by nature,
                  * so who is late all of the time is not named, but counted in n_stages */
};

enum judge_kind {
    LATE_ALWAYS,    /* in most steps of an episode */
    LATE_SOMETIMES, /* in few */
    LATE_LINK,      /* communication itself is slow, and so are this rank's connections */
    LATE_STARVED    /* likewise, and this rank gets no processor when it is ready to run */
};

struct judge_finding {
    enum judge_kind kind;
    uint32_t rank; /* its index */
    enum judge_part part;
    double late_sec; /* than the middle one of the ranks, in the middle one of its late steps */
    double all_sec;  /* likewise, in all of its late steps together */
    double lost_sec; /* that all ranks would have waited less without it, in all */
    uint32_t n_late, n_of;   /* late steps, of how many */
    uint32_t first, last;    /* indices of the first and last late step */
    bool sampled;            /* late steps are backwards whose own time is known */
    bool from_start, to_end; /* LATE_ALWAYS: the episode begins or ends where the steps do */
    int64_t every;           /* LATE_SOMETIMES: at even distances of so many steps; 0: not so */
    uint32_t signs;          /* bits of enum judge_sign that set it apart from the others */
    /* LATE_LINK by its links: the slowest of the bad ones, and what is usual in this job. */
    bool slow, lossy;
    bool sure; /* not by the newest round trips alone: a rank without a processor has them, too */
    bool between;  /* it is that one only: both its ends reach the others well */
    uint32_t peer; /* index of a rank at its other end */
    struct judge_link link, others;
};

enum judge_outcome {
    JUDGE_NAMED,
    JUDGE_SILENT,    /* nobody stands out */
    JUDGE_FEW_STEPS, /* fewer than JUDGE_STEPS_MIN that the ranks have in common */
    JUDGE_ONE_RANK,  /* nobody to compare with */
    JUDGE_NO_MEMORY
};

struct judge_report {
    enum judge_outcome outcome;
    struct judge_finding found[JUDGE_NAMED_MAX]; /* whoever cost most first */
    uint32_t n_found, n_more;                    /* n_more: not kept */
    uint32_t n_steps;                            /* that could be compared */
    int64_t n_passed;                            /* steps from the first to the last of them */
    double step_sec;                             /* the middle one */
    double total_sec;                            /* of all that were compared */
    double last_comm_sec; /* communication of the rank that waits least, in the middle step */
    double newest_sec, newest_comm_sec; /* steps and that, of the newest ones */
    uint32_t n_stages,
        stage;        /* late all of the time by the rules, and not named; the latest one, */
    double stage_sec; /* by so much */
    bool other_waits; /* ranks wait for each other in PART_OTHER (a GPU is read there) */
};

void judge_ranks(const struct judge_job *j, struct judge_report *ret);

/* Find the signs that set a rank apart: more than the middle one of the ranks by half of that, by
 * four sigma of how ranks differ, and by what is worth telling. */
uint32_t judge_signs(const double *signs, uint32_t n_ranks, uint32_t rank);

/* A machine's signs are seen by each of its ranks itself, at other moments: give all of them the
 * middle one.  ranks: indices of those of one machine. */
void judge_level_signs(double *signs, const uint32_t *ranks, uint32_t n);

/* Do its signs say that its part of communication takes long, though it is not late?  Its network
 * loses packets; or it does not run when it could: its cgroup is throttled, the hypervisor takes
 * its processors, or it waits for one (half as long again as the others, or longest of all by 0.1 s
 * a second) and is nicer than the others or has fewer to run on, or waits three times as long as
 * any other rank, and for 0.3 s a second at least.  Sets *ret's kind and signs.
 * links_known: they tell where segments are lost, so that to send again is no sign: whoever is at
 * the other end of a bad cable does so, too. */
bool judge_slows(const double *signs, uint32_t n_ranks, uint32_t rank, bool links_known,
                 struct judge_finding *ret);

/* ---- links ---- */

/* The faults of the links between nodes. */
struct judge_links {
    const struct judge_job *j;
    struct judge_link usual; /* of the nearest neighbours: the middle one of the nodes' */
    uint8_t *bad;            /* [n_links] bits LINK_... */
    uint32_t *groups;        /* [n_nodes] who is reached by good links only has the same number */
    uint32_t *sizes;         /* [n_nodes] of the group of that number */
    uint32_t n_known;        /* nodes that have a link */
    uint32_t between;        /* the only bad link within a group; UINT32_MAX: none, or several */
};
enum { LINK_SLOW = 1, LINK_SLOW_NOW = 2, LINK_LOSSY = 4 };

/* Only what is wrong by `which` is looked at.  false: no memory.  Either way links_done(). */
bool links_make(const struct judge_job *j, unsigned which, struct judge_links *ret);
/* Keep slow links apart from lossy ones: each by itself says where it is.  As links_make(). */
bool links_find(const struct judge_job *j, struct judge_links *ret);
/* Is there any rank that links_tell() tells? */
bool links_found(const struct judge_links *l);
void links_done(struct judge_links *l);
/* Do the links of a node tell where segments are lost? */
bool links_know(const struct judge_links *l, uint32_t node);
/* Is a rank's machine behind a bad cable?  All of its links are bad, and more than half of the
 * machines reach each other by good ones.  Machines that are far away together are in another
 * place.  Or is one link the only bad one between machines that reach each other?  Then the first
 * rank at the first of its ends is told, and the other end as its peer. */
bool links_tell(const struct judge_links *l, uint32_t rank, struct judge_finding *ret);

/* ---- lining up: whose step is whose ---- */

struct judge_row {          /* of one rank, as its table has it; in the order of their numbers */
    int64_t number, end_ns; /* of its own clock; UTC, which may be wrong by much */
    int64_t global;         /* the program's own number; INT64_MIN: it gives none */
    bool waits;             /* its communication is known */
    struct judge_step step;
};

/* A rank that makes so many steps while the others make one: rows of its own, in order and without
 * a gap, become one.  The last of them is the one that waits longest; gives how many there are. */
uint32_t judge_join_rows(struct judge_row *rows, uint32_t n, uint32_t times);

/* Find what to add to b's numbers to get a's, of steps they made together: by the program's own
 * numbers, else by when they ended and how long they took.  false: they do not step together. */
bool judge_line_up(const struct judge_row *a, uint32_t n_a, const struct judge_row *b, uint32_t n_b,
                   int64_t *ret_shift);

#endif
