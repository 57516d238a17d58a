/* The replayed programs. Each runs as two processes, the ranks. They exchange bytes and wait for each other in memory
 * that they share, as real ones do through PMI or sockets. */

#pragma once

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

enum { RANKS = 2, NAME_MAX_BYTES = 64 };

/* A row of the table. */
struct program {
    const char *name;
    const char *offered_as; /* the name under which homespun is offered; NULL: its own */
    const char *provider;   /* the provider that the program asks for; NULL: any */
    uint32_t version;       /* of the interface that the program asks for */
    struct fi_info *(*hints)(void);
};

extern const struct program *program;
extern int rank;
/* What this process does or waits for. It is printed if that takes too long. */
extern const char *volatile step;

void require(int is_true, const char *what, long result);

#define MUST(call)                              \
    do {                                        \
        step = #call;                           \
        long result_ = (long)(call);            \
        require(result_ == 0, #call, result_);  \
    } while (0)

#define WAIT_UNTIL(condition, make_progress) \
    do {                                     \
        step = #condition;                   \
        while (!(condition)) {               \
            make_progress;                   \
            sched_yield();                   \
        }                                    \
    } while (0)

#define CLOSE(object) MUST(fi_close(&(object)->fid))

/* Waits until all ranks are here. Makes progress with the queue meanwhile, if there is one. */
void barrier(struct fid_cq *cq);

/* Gives each rank the bytes of all ranks, in the order of the ranks. */
void exchange(const void *mine, size_t len_bytes, void *all);

/* Returns new hints with the name of the provider that the program asks for. */
struct fi_info *new_hints(uint64_t caps);

/* Returns the infos for the hints, of the provider that the program expects. Frees the hints. */
struct fi_info *query(struct fi_info *hints);
/* Requires that no info meets the hints for this version, after which a program asks for less. Keeps the hints. */
void require_unmet(uint32_t version, const struct fi_info *hints);

/* The objects that a program opens once. */
struct session {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *endpoint;
    fi_addr_t peers[RANKS];
};

/* Opens the fabric and the domain of an info. close_session frees the info. */
void open_domain_of(struct session *session, struct fi_info *info);
/* Exchanges the names of one endpoint of each rank, and inserts them. */
void insert_names(struct fid_ep *endpoint, struct fid_av *av, fi_addr_t *peers);
/* Closes all objects, the endpoint first. */
void close_session(struct session *session);

/* Waits for this number of completions, which may have any format up to TAGGED. */
void await_completions(struct fid_cq *cq, int count);
/* Reads the queue without taking a completion. */
void make_progress(struct fid_cq *cq);

/* Fills memory with a pattern. */
void fill(void *memory, size_t len_bytes, unsigned seed);

/* Runs a rank with the infos for these hints. */
void run_hinted(struct fi_info *hints);

extern const struct program PROGRAMS[];
extern const size_t PROGRAM_COUNT;
