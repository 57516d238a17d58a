/* One of several processes in a ring. Each updates the memory of the next process, and waits for updates of its own memory,
 * as OpenSHMEM's programs do. There is one endpoint for everything; counters are bound after it was enabled; and a counter
 * of the memory region shows puts, adds, swaps and compare-and-swaps by the neighbour.
 *
 * usage: symmetric_memory DOMAIN RANK RANKS manual|auto unspec|none
 *
 * It prints its address as a line of hexadecimal digits, reads the addresses of all ranks, prints "done" when all checks have
 * passed, and makes progress for its neighbours until its input ends. */

#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "endpoint_names.h"

enum { ROUNDS = 200, KEY = 7, WAIT_MS = 60000 };

/* The words of each rank's memory, one for each way in which its neighbour updates it. */
enum way { PUT, INJECTED_PUT, ADD, FETCHED_ADD, SWAP, COMPARE_AND_SWAP, WAYS };

static struct fid_ep *endpoint;
static struct fid_cntr *written, *fetched, *updated;
static uint64_t writes, fetches;
static volatile uint64_t memory[WAYS];
static fi_addr_t neighbour;
static int blocks;

/* Repeats a call while the endpoint has no room. */
#define POST(call)                                        \
    do {                                                  \
        long result_;                                     \
        while ((result_ = (long)(call)) == -FI_EAGAIN)    \
            fi_cntr_read(updated);                        \
        require(result_ == 0, #call, result_);            \
    } while (0)

/* Waits until a counter has reached a threshold. */
static void wait_for_threshold(struct fid_cntr *counter, uint64_t threshold)
{
    if (blocks)
        MUST(fi_cntr_wait(counter, threshold, WAIT_MS));
    while (fi_cntr_read(counter) < threshold) {
        require(fi_cntr_readerr(counter) == 0, "an operation failed", 0);
        sched_yield();
    }
}

/* Waits until a word has a value, as OpenSHMEM's shmem_wait_until: reads the word after each access by the neighbour. */
static void wait_until(enum way way, uint64_t value)
{
    for (;;) {
        uint64_t seen = fi_cntr_read(updated);
        if (memory[way] == value)
            return;
        wait_for_threshold(updated, seen + 1);
    }
}

/* Waits until all operations of this process have completed, as OpenSHMEM's shmem_quiet. */
static void finish(void)
{
    wait_for_threshold(written, writes);
    wait_for_threshold(fetched, fetches);
}

static void update(enum way way, uint64_t round)
{
    static uint64_t operand, compare, result;
    uint64_t at = way * sizeof(uint64_t);
    const enum fi_datatype type = FI_UINT64;

    result = UINT64_MAX;
    operand = way == ADD || way == FETCHED_ADD ? 1 : round;
    compare = round - 1;
    switch (way) {
    case PUT:
        POST(fi_write(endpoint, &operand, sizeof operand, NULL, neighbour, at, KEY, NULL));
        break;
    case INJECTED_PUT:
        POST(fi_inject_write(endpoint, &operand, sizeof operand, neighbour, at, KEY));
        break;
    case ADD:
        POST(fi_atomic(endpoint, &operand, 1, NULL, neighbour, at, KEY, type, FI_SUM, NULL));
        break;
    case FETCHED_ADD:
        POST(fi_fetch_atomic(endpoint, &operand, 1, NULL, &result, NULL, neighbour, at, KEY, type, FI_SUM, NULL));
        break;
    case SWAP:
        POST(fi_fetch_atomic(endpoint, &operand, 1, NULL, &result, NULL, neighbour, at, KEY, type, FI_ATOMIC_WRITE,
                             NULL));
        break;
    case COMPARE_AND_SWAP:
        POST(fi_compare_atomic(endpoint, &operand, 1, NULL, &compare, NULL, &result, NULL, neighbour, at, KEY, type,
                               FI_CSWAP, NULL));
        break;
    default:
        abort();
    }
    if (way == FETCHED_ADD || way == SWAP || way == COMPARE_AND_SWAP)
        fetches++;
    else
        writes++;
    finish();
    if (way == FETCHED_ADD || way == SWAP || way == COMPARE_AND_SWAP)
        require(result == round - 1, "what was fetched is not what was there", (long)result);
}

static struct fi_info *choose(const char *domain, int is_auto)
{
    struct fi_info *hints = fi_allocinfo(), *info;

    require(hints != NULL, "fi_allocinfo", -FI_ENOMEM);
    hints->caps = FI_RMA | FI_ATOMIC | FI_RMA_EVENT;
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = 0;
    hints->domain_attr->data_progress = is_auto ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
    hints->domain_attr->name = strdup(domain);
    hints->fabric_attr->prov_name = strdup("homespun");
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    MUST(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info));
    fi_freeinfo(hints);
    return info;
}

/* Reads the next address, and inserts it. */
static fi_addr_t insert_next_name(struct fid_av *av)
{
    unsigned char name[NAME_MAX_BYTES];
    fi_addr_t address;

    read_next_name(name);
    require(fi_av_insert(av, name, 1, &address, 0, NULL) == 1, "fi_av_insert", 0);
    return address;
}

int main(int argc, char **argv)
{
    /* If a wait does not end, the signal ends the program with a failure. */
    alarm(2 * WAIT_MS / 1000);
    require(argc == 6, "usage: symmetric_memory DOMAIN RANK RANKS manual|auto unspec|none", 0);
    int rank = atoi(argv[2]), ranks = atoi(argv[3]);
    struct fi_info *info = choose(argv[1], strcmp(argv[4], "auto") == 0);
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_mr *mr;
    struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_CONTEXT };
    struct fi_cntr_attr cntr_attr = { .events = FI_CNTR_EVENTS_COMP };

    blocks = strcmp(argv[5], "unspec") == 0;
    cntr_attr.wait_obj = blocks ? FI_WAIT_UNSPEC : FI_WAIT_NONE;
    MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
    MUST(fi_domain(fabric, info, &domain, NULL));
    MUST(fi_av_open(domain, &(struct fi_av_attr){ .type = FI_AV_TABLE }, &av, NULL));
    MUST(fi_cq_open(domain, &cq_attr, &cq, NULL));
    MUST(fi_endpoint(domain, info, &endpoint, NULL));
    MUST(fi_ep_bind(endpoint, &av->fid, 0));
    MUST(fi_ep_bind(endpoint, &cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
    MUST(fi_enable(endpoint));

    /* The memory region. Its access rights contain capabilities, which the provider ignores. `updated` counts the updates by
     * the neighbour. */
    struct iovec iov = { .iov_base = (void *)memory, .iov_len = sizeof memory };
    struct fi_mr_attr mr_attr = {
        .mr_iov = &iov,
        .iov_count = 1,
        .access = FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RMA | FI_ATOMIC,
        .requested_key = KEY,
    };
    MUST(fi_cntr_open(domain, &cntr_attr, &updated, NULL));
    MUST(fi_mr_regattr(domain, &mr_attr, 0, &mr));
    MUST(fi_mr_bind(mr, &updated->fid, FI_REMOTE_WRITE));

    /* The counters of this process's own operations, bound after the endpoint was enabled. */
    MUST(fi_cntr_open(domain, &cntr_attr, &written, NULL));
    MUST(fi_cntr_open(domain, &cntr_attr, &fetched, NULL));
    MUST(fi_ep_bind(endpoint, &written->fid, FI_WRITE));
    MUST(fi_ep_bind(endpoint, &fetched->fid, FI_READ));
    require(fi_ep_bind(endpoint, &updated->fid, FI_READ) == -FI_EBUSY, "a second counter of reads was taken", 0);
    MUST(fi_enable(endpoint));

    print_name(endpoint);
    for (int i = 0; i < ranks; i++) {
        fi_addr_t address = insert_next_name(av);
        if (i == (rank + 1) % ranks)
            neighbour = address;
    }

    for (uint64_t round = 1; round <= ROUNDS; round++) {
        for (enum way way = 0; way < WAYS; way++) {
            update(way, round);
            wait_until(way, round);
        }
    }
    wait_for_threshold(updated, (uint64_t)ROUNDS * WAYS);
    uint64_t counted = fi_cntr_read(updated);
    require(counted == (uint64_t)ROUNDS * WAYS, "accesses were counted twice", (long)counted);
    require(fi_cntr_read(written) == writes && fi_cntr_read(fetched) == fetches, "operations were counted twice", 0);
    printf("done\n");
    fflush(stdout);

    struct pollfd input = { .fd = 0, .events = POLLIN };
    while (poll(&input, 1, 1) == 0)
        fi_cntr_read(updated);

    MUST(fi_close(&endpoint->fid));
    MUST(fi_close(&mr->fid));
    MUST(fi_close(&updated->fid));
    MUST(fi_close(&written->fid));
    MUST(fi_close(&fetched->fid));
    MUST(fi_close(&cq->fid));
    MUST(fi_close(&av->fid));
    MUST(fi_close(&domain->fid));
    MUST(fi_close(&fabric->fid));
    fi_freeinfo(info);
    return 0;
}
