/* Operations that wait for counters: fi_trigger(3). Rank 0 sends two messages. At rank 1 the first one triggers an
 * answer, and a chain of deferred work: a tagged receive, a write to the memory of rank 0, an atomic operation that
 * fetches, and the change of a counter. Rank 1 only waits for that change. It also cancels and flushes other work. */

#include "driver.h"

enum { KEY = 7, TAG = 9, WRITTEN = 42, BEFORE = 100, ADDED = 5, CHANGE = 7 };

static struct session session;
static struct fid_ep *endpoint;
static struct fid_cntr *received;
static volatile uint64_t memory[2] = { 0, BEFORE };
static fi_addr_t other;
static enum fi_wait_obj counter_wait;

static struct fid_cntr *new_counter(void)
{
    return open_counter(session.domain, counter_wait);
}

static void wait_for_threshold(struct fid_cntr *counter, uint64_t threshold)
{
    if (counter_wait != FI_WAIT_NONE)
        MUST(fi_cntr_wait(counter, threshold, -1));
    WAIT_UNTIL(fi_cntr_read(counter) >= threshold, (void)0);
    require(fi_cntr_readerr(counter) == 0, "an operation failed", 0);
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

static int control_domain(int command, void *argument)
{
    return fi_control(&session.domain->fid, command, argument);
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
        ended[i] = next_completion(session.cq).op_context;
        require(ended[i] == &receive || ended[i] == &send || ended[i] == &tagged_send, "an unknown context", 0);
    }
    require(memcmp(answer, "answer", 6) == 0, "another answer", 0);
    WAIT_UNTIL(memory[0] == WRITTEN && memory[1] == BEFORE + ADDED, fi_cntr_read(received));
}

/* Rank 1: queues the triggered answer and the deferred work, and waits for the last counter. */
static void queue_answer_and_work(void)
{
    struct fid_cntr *tagged = new_counter(), *written = new_counter(), *fetched = new_counter();
    struct fid_cntr *last = new_counter(), *never = new_counter();
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
    MUST(control_domain(FI_QUEUE_WORK, &fourth));

    struct fi_ioc summand_ioc = { .addr = &summand, .count = 1 }, result_ioc = { .addr = &result, .count = 1 };
    struct fi_op_fetch_atomic fetch = {
        .ep = endpoint,
        .msg = { .msg_iov = &summand_ioc, .iov_count = 1, .addr = other, .rma_iov = &element, .rma_iov_count = 1,
                 .datatype = FI_UINT64, .op = FI_SUM },
        .fetch = { .msg_iov = &result_ioc, .iov_count = 1 },
    };
    struct fi_deferred_work third = work_of(FI_OP_FETCH_ATOMIC, &fetch, written, 1, fetched);
    MUST(control_domain(FI_QUEUE_WORK, &third));

    struct iovec operand_iov = { .iov_base = &operand, .iov_len = sizeof operand };
    struct fi_op_rma write = {
        .ep = endpoint,
        .msg = { .msg_iov = &operand_iov, .iov_count = 1, .addr = other, .rma_iov = &place, .rma_iov_count = 1 },
        .flags = FI_DELIVERY_COMPLETE,
    };
    struct fi_deferred_work second = work_of(FI_OP_WRITE, &write, tagged, 1, written);
    MUST(control_domain(FI_QUEUE_WORK, &second));

    struct iovec tagged_iov = { .iov_base = tagged_message, .iov_len = sizeof tagged_message };
    struct fi_op_tagged trecv = {
        .ep = endpoint,
        .msg = { .msg_iov = &tagged_iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = TAG },
    };
    struct fi_deferred_work first = work_of(FI_OP_TRECV, &trecv, received, 1, tagged);
    MUST(control_domain(FI_QUEUE_WORK, &first));

    /* Work that never runs. Its counters are busy until it is cancelled or flushed. */
    struct fi_op_msg send = { .ep = endpoint, .msg = answer_msg };
    struct fi_deferred_work cancelled = work_of(FI_OP_SEND, &send, received, 1, never);
    struct fi_deferred_work flushed = work_of(FI_OP_SEND, &send, last, 1, never);
    MUST(control_domain(FI_QUEUE_WORK, &cancelled));
    MUST(control_domain(FI_QUEUE_WORK, &flushed));
    require(fi_close(&never->fid) == -FI_EBUSY, "a counter of deferred work was closed", 0);
    MUST(control_domain(FI_CANCEL_WORK, &cancelled));
    require(control_domain(FI_CANCEL_WORK, &cancelled) == -FI_ENOENT, "work was cancelled twice", 0);
    MUST(control_domain(FI_FLUSH_WORK, last));
    MUST(fi_close(&never->fid));

    /* This receive counts the message that triggers everything. After it, this program only waits. */
    MUST(fi_recv(endpoint, message, sizeof message, NULL, FI_ADDR_UNSPEC, &receive));
    wait_for_threshold(last, CHANGE);
    require(memcmp(message, "begin", 5) == 0 && memcmp(tagged_message, "tagged", 6) == 0, "other messages", 0);
    require(result == BEFORE, "what was fetched is not what was there", (long)result);
    void *ended[2] = { next_completion(session.cq).op_context, next_completion(session.cq).op_context };
    require(ended[0] != ended[1], "one operation was reported twice", 0);
    for (int i = 0; i < 2; i++)
        require(ended[i] == &receive || ended[i] == &triggered, "an unknown context", 0);
    struct fi_cq_entry entry;
    require(fi_cq_read(session.cq, &entry, 1) == -FI_EAGAIN, "a completion of deferred work", 0);
    require(fi_cntr_read(received) == 1, "the deferred receive was counted by the endpoint", 0);
    require(fi_cntr_read(last) == CHANGE, "a counter was changed twice", 0);
    require(control_domain(FI_CANCEL_WORK, &first) == -FI_ENOENT, "work was cancelled that was done", 0);
    MUST(control_domain(FI_FLUSH_WORK, NULL));
    MUST(fi_close(&last->fid));
    MUST(fi_close(&fetched->fid));
    MUST(fi_close(&written->fid));
    MUST(fi_close(&tagged->fid));
}

static struct fi_info *ask(enum fi_progress progress)
{
    struct fi_info *hints = new_hints(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER);

    hints->mode = FI_CONTEXT;
    hints->domain_attr->mr_mode = 0;
    hints->domain_attr->data_progress = progress;
    return hints;
}

struct fi_info *triggers_hints(void)
{
    counter_wait = FI_WAIT_UNSPEC;
    return ask(FI_PROGRESS_AUTO);
}

struct fi_info *triggers_manual_hints(void)
{
    counter_wait = FI_WAIT_UNSPEC;
    return ask(FI_PROGRESS_MANUAL);
}

struct fi_info *triggers_polled_hints(void)
{
    counter_wait = FI_WAIT_NONE;
    return ask(FI_PROGRESS_MANUAL);
}

void run_triggers(struct fi_info *hints)
{
    struct fid_mr *mr;

    open_domain(&session, hints);
    session.av = open_av(session.domain, FI_AV_TABLE, 0);
    session.cq = open_cq(session.domain, FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE, 0);
    MUST(fi_endpoint(session.domain, session.info, &session.endpoint, NULL));
    endpoint = session.endpoint;
    received = new_counter();
    MUST(fi_ep_bind(endpoint, &session.av->fid, 0));
    MUST(fi_ep_bind(endpoint, &session.cq->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_ep_bind(endpoint, &received->fid, FI_RECV));
    MUST(fi_enable(endpoint));
    MUST(fi_mr_reg(session.domain, (void *)memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr,
                   NULL));
    insert_names(endpoint, session.av, session.peers);
    other = session.peers[1 - rank];
    barrier(NULL);
    if (rank == 0)
        send_and_await_answer();
    else
        queue_answer_and_work();
    barrier(session.cq);

    CLOSE(endpoint);
    session.endpoint = NULL;
    CLOSE(mr);
    CLOSE(received);
    close_session(&session);
}
