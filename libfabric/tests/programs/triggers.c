/* One of two processes whose operations wait for counters. Rank 0 sends two messages. At rank 1 the first one triggers an
 * answer, and a chain of deferred work: a tagged receive, a write to the memory of rank 0, an atomic operation that fetches,
 * and the change of a counter. Rank 1 only waits for that change. It also cancels and flushes other work.
 *
 * usage: triggers DOMAIN RANK manual|auto unspec|none
 *
 * It prints its address as a line of hexadecimal digits, reads the addresses of both ranks, prints "done" when all checks have
 * passed, and makes progress for the other rank until its input ends. */

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
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>

#include "endpoint_names.h"

enum { KEY = 7, TAG = 9, WAIT_MS = 60000, WRITTEN = 42, BEFORE = 100, ADDED = 5, CHANGE = 7 };

static struct fid_domain *domain;
static struct fid_ep *endpoint;
static struct fid_cq *cq;
static struct fid_cntr *received;
static volatile uint64_t memory[2] = { 0, BEFORE };
static fi_addr_t other;
static int blocks;

static struct fid_cntr *open_counter(void)
{
    struct fi_cntr_attr attr = {
        .events = FI_CNTR_EVENTS_COMP,
        .wait_obj = blocks ? FI_WAIT_UNSPEC : FI_WAIT_NONE,
    };
    struct fid_cntr *counter;

    MUST(fi_cntr_open(domain, &attr, &counter, NULL));
    return counter;
}

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

/* Waits for the next completion, and returns its context. */
static void *next_completion(void)
{
    struct fi_cq_entry entry;
    ssize_t result;

    while ((result = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
        sched_yield();
    require(result == 1, "fi_cq_read", result);
    return entry.op_context;
}

static void require_no_completion(void)
{
    struct fi_cq_entry entry;
    ssize_t result = fi_cq_read(cq, &entry, 1);

    require(result == -FI_EAGAIN, "a completion of deferred work", result);
}

static struct fi_deferred_work work_of(enum fi_op_type type, void *op, struct fid_cntr *trigger, uint64_t threshold,
                                       struct fid_cntr *completion)
{
    struct fi_deferred_work work = {
        .threshold = threshold,
        .triggering_cntr = trigger,
        .completion_cntr = completion,
        .op_type = type,
    };
    work.op.msg = op;
    return work;
}

static int control(int command, void *argument)
{
    return fi_control(&domain->fid, command, argument);
}

/* Rank 0: sends the messages, and waits for the answer and for the updates of its memory. */
static void send_and_await_answer(void)
{
    static char answer[8];
    static struct fi_context receive, send, tagged_send;
    void *ended[3];

    MUST(fi_recv(endpoint, answer, sizeof answer, NULL, FI_ADDR_UNSPEC, &receive));
    MUST(fi_send(endpoint, "begin", 5, NULL, other, &send));
    MUST(fi_tsend(endpoint, "tagged", 6, NULL, other, TAG, &tagged_send));
    for (int i = 0; i < 3; i++) {
        ended[i] = next_completion();
        require(ended[i] == &receive || ended[i] == &send || ended[i] == &tagged_send, "an unknown context", 0);
    }
    require(memcmp(answer, "answer", 6) == 0, "another answer", 0);
    while (memory[0] != WRITTEN || memory[1] != BEFORE + ADDED) {
        fi_cntr_read(received);
        sched_yield();
    }
}

/* Rank 1: queues the triggered answer and the deferred work, and waits for the last counter. */
static void queue_answer_and_work(void)
{
    struct fid_cntr *tagged = open_counter(), *written = open_counter(), *fetched = open_counter();
    struct fid_cntr *last = open_counter(), *never = open_counter();
    static char message[8], tagged_message[8];
    static uint64_t operand = WRITTEN, summand = ADDED, result;
    static struct fi_context receive;
    struct fi_rma_iov place = { .addr = 0, .len = sizeof operand, .key = KEY };
    struct fi_rma_ioc element = { .addr = sizeof operand, .count = 1, .key = KEY };

    /* The answer, as a triggered operation. */
    static struct fi_triggered_context triggered;
    struct iovec answer_iov = { .iov_base = "answer", .iov_len = 6 };
    struct fi_msg answer_msg = { .msg_iov = &answer_iov, .iov_count = 1, .addr = other, .context = &triggered };
    triggered.event_type = FI_TRIGGER_THRESHOLD;
    triggered.trigger.threshold.cntr = received;
    triggered.trigger.threshold.threshold = 1;
    MUST(fi_sendmsg(endpoint, &answer_msg, FI_TRIGGER | FI_COMPLETION));

    /* The chain of deferred work, queued in reverse order. */
    struct fi_op_cntr change = { .cntr = last, .value = CHANGE };
    struct fi_deferred_work fourth = work_of(FI_OP_CNTR_ADD, &change, fetched, 1, NULL);
    MUST(control(FI_QUEUE_WORK, &fourth));

    struct fi_ioc summand_ioc = { .addr = &summand, .count = 1 }, result_ioc = { .addr = &result, .count = 1 };
    struct fi_op_fetch_atomic fetch = {
        .ep = endpoint,
        .msg = { .msg_iov = &summand_ioc, .iov_count = 1, .addr = other, .rma_iov = &element, .rma_iov_count = 1,
                 .datatype = FI_UINT64, .op = FI_SUM },
        .fetch = { .msg_iov = &result_ioc, .iov_count = 1 },
    };
    struct fi_deferred_work third = work_of(FI_OP_FETCH_ATOMIC, &fetch, written, 1, fetched);
    MUST(control(FI_QUEUE_WORK, &third));

    struct iovec operand_iov = { .iov_base = &operand, .iov_len = sizeof operand };
    struct fi_op_rma write = {
        .ep = endpoint,
        .msg = { .msg_iov = &operand_iov, .iov_count = 1, .addr = other, .rma_iov = &place, .rma_iov_count = 1 },
        .flags = FI_DELIVERY_COMPLETE,
    };
    struct fi_deferred_work second = work_of(FI_OP_WRITE, &write, tagged, 1, written);
    MUST(control(FI_QUEUE_WORK, &second));

    struct iovec tagged_iov = { .iov_base = tagged_message, .iov_len = sizeof tagged_message };
    struct fi_op_tagged trecv = {
        .ep = endpoint,
        .msg = { .msg_iov = &tagged_iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = TAG },
    };
    struct fi_deferred_work first = work_of(FI_OP_TRECV, &trecv, received, 1, tagged);
    MUST(control(FI_QUEUE_WORK, &first));

    /* Work that never runs. Its counters are busy until it is cancelled or flushed. */
    struct fi_op_msg send = { .ep = endpoint, .msg = answer_msg };
    struct fi_deferred_work cancelled = work_of(FI_OP_SEND, &send, received, 1, never);
    struct fi_deferred_work flushed = work_of(FI_OP_SEND, &send, last, 1, never);
    MUST(control(FI_QUEUE_WORK, &cancelled));
    MUST(control(FI_QUEUE_WORK, &flushed));
    require(fi_close(&never->fid) == -FI_EBUSY, "a counter of deferred work was closed", 0);
    MUST(control(FI_CANCEL_WORK, &cancelled));
    require(control(FI_CANCEL_WORK, &cancelled) == -FI_ENOENT, "work was cancelled twice", 0);
    MUST(control(FI_FLUSH_WORK, last));
    MUST(fi_close(&never->fid));

    /* This receive counts the message that triggers everything. After it, this program only waits. */
    MUST(fi_recv(endpoint, message, sizeof message, NULL, FI_ADDR_UNSPEC, &receive));
    wait_for_threshold(last, CHANGE);
    require(memcmp(message, "begin", 5) == 0 && memcmp(tagged_message, "tagged", 6) == 0, "other messages", 0);
    require(result == BEFORE, "what was fetched is not what was there", (long)result);
    void *ended[2] = { next_completion(), next_completion() };
    require(ended[0] != ended[1], "one operation was reported twice", 0);
    for (int i = 0; i < 2; i++)
        require(ended[i] == &receive || ended[i] == &triggered, "an unknown context", 0);
    require_no_completion();
    require(fi_cntr_read(received) == 1, "the deferred receive was counted by the endpoint", 0);
    require(fi_cntr_read(last) == CHANGE, "a counter was changed twice", 0);
    require(control(FI_CANCEL_WORK, &first) == -FI_ENOENT, "work was cancelled that was done", 0);
    MUST(control(FI_FLUSH_WORK, NULL));
    MUST(fi_close(&last->fid));
    MUST(fi_close(&fetched->fid));
    MUST(fi_close(&written->fid));
    MUST(fi_close(&tagged->fid));
}

static struct fi_info *choose(const char *name, int is_auto)
{
    struct fi_info *hints = fi_allocinfo(), *info;

    require(hints != NULL, "fi_allocinfo", -FI_ENOMEM);
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER;
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = 0;
    hints->domain_attr->data_progress = is_auto ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
    hints->domain_attr->name = strdup(name);
    hints->fabric_attr->prov_name = strdup("homespun");
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
    require(argc == 5, "usage: triggers DOMAIN RANK manual|auto unspec|none", 0);
    int rank = atoi(argv[2]);
    struct fi_info *info = choose(argv[1], strcmp(argv[3], "auto") == 0);
    struct fid_fabric *fabric;
    struct fid_av *av;
    struct fid_mr *mr;
    struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_CONTEXT };

    blocks = strcmp(argv[4], "unspec") == 0;
    MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
    MUST(fi_domain(fabric, info, &domain, NULL));
    MUST(fi_av_open(domain, &(struct fi_av_attr){ .type = FI_AV_TABLE }, &av, NULL));
    MUST(fi_cq_open(domain, &cq_attr, &cq, NULL));
    MUST(fi_endpoint(domain, info, &endpoint, NULL));
    received = open_counter();
    MUST(fi_ep_bind(endpoint, &av->fid, 0));
    MUST(fi_ep_bind(endpoint, &cq->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_ep_bind(endpoint, &received->fid, FI_RECV));
    MUST(fi_enable(endpoint));
    MUST(fi_mr_reg(domain, (void *)memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));

    print_name(endpoint);
    for (int i = 0; i < 2; i++) {
        fi_addr_t address = insert_next_name(av);
        if (i != rank)
            other = address;
    }
    if (rank == 0)
        send_and_await_answer();
    else
        queue_answer_and_work();
    printf("done\n");
    fflush(stdout);

    struct pollfd input = { .fd = 0, .events = POLLIN };
    while (poll(&input, 1, 1) == 0)
        fi_cntr_read(received);

    MUST(fi_close(&endpoint->fid));
    MUST(fi_close(&mr->fid));
    MUST(fi_close(&received->fid));
    MUST(fi_close(&cq->fid));
    MUST(fi_close(&av->fid));
    MUST(fi_close(&domain->fid));
    MUST(fi_close(&fabric->fid));
    fi_freeinfo(info);
    return 0;
}
