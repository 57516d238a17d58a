/* OpenSHMEM, as Sandia's library: symmetric memory that each rank writes, reads and updates at the others. */

#include "driver.h"

enum { ROUNDS = 60, HEAP_KEY = 1, DATA_KEY = 0, LARGE_BYTES = 3 << 20 };

/* The words of the symmetric data, one for each way in which the rank before this one updates it. */
enum way { PUT, INJECTED_PUT, BOUNCED_PUT, INJECTED_ADD, FETCHED_ADD, SWAP, COMPARE_AND_SWAP, SIGNAL, WAYS };

/* The wait object of its counters, for which the library was built. */
static enum fi_wait_obj build_counter_wait;

/* A context of the library: an endpoint that sends, and what counts and reports its operations. */
struct context {
    struct fid_ep *endpoint;
    struct fid_cq *cq;
    struct fid_cntr *puts, *gets;
    struct fid_stx *stx;
    uint64_t put_count, get_count;
};

static struct session session;
static struct fid_mr *heap_mr, *data_mr;
static struct fid_cntr *updated;
static volatile uint64_t data[WAYS];
static char heap[LARGE_BYTES];
static struct segment heaps[RANKS_MAX], datas[RANKS_MAX];

static struct fi_info *ask(enum fi_progress progress, enum fi_wait_obj counter_wait)
{
    struct fi_info *hints = new_hints(FI_RMA | FI_ATOMIC | FI_RMA_EVENT);

    build_counter_wait = counter_wait;
    hints->domain_attr->data_progress = progress;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    if (progress == FI_PROGRESS_AUTO)
        hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    /* Two keys fit into one byte. */
    hints->domain_attr->mr_key_size = 1;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->ep_attr->tx_ctx_cnt = 0;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    hints->tx_attr->inject_size = sizeof(long double);
    return hints;
}

struct fi_info *openshmem_hints(void)
{
    return ask(FI_PROGRESS_AUTO, FI_WAIT_UNSPEC);
}

struct fi_info *openshmem_manual_hints(void)
{
    return ask(FI_PROGRESS_MANUAL, FI_WAIT_UNSPEC);
}

struct fi_info *openshmem_polled_hints(void)
{
    return ask(FI_PROGRESS_MANUAL, FI_WAIT_NONE);
}

static struct fid_mr *register_segment(void *base, size_t len_bytes, uint64_t key)
{
    struct fid_mr *mr;

    MUST(fi_mr_reg(session.domain, base, len_bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key, 0, &mr, NULL));
    MUST(fi_mr_bind(mr, &updated->fid, FI_REMOTE_WRITE));
    return mr;
}

/* Opens the endpoint that sends, and at which the other ranks read and write. */
static void open_target(struct fi_info *hints)
{
    struct fi_info *info;

    open_domain(&session, hints);
    session.av = open_av(session.domain, FI_AV_TABLE, (size_t)ranks);
    info = session.info;
    info->ep_attr->tx_ctx_cnt = 0;
    info->caps = FI_RMA | FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RMA_EVENT | FI_WRITE | FI_READ | FI_RECV;
    info->mode = info->tx_attr->mode = info->rx_attr->mode = 0;
    info->tx_attr->op_flags = 0;
    info->tx_attr->caps = FI_RMA | FI_ATOMIC;
    info->rx_attr->caps = info->caps;
    MUST(fi_endpoint(session.domain, info, &session.endpoint, NULL));
    MUST(fi_ep_bind(session.endpoint, &session.av->fid, 0));
    session.cq = open_cq(session.domain, FI_CQ_FORMAT_UNSPEC, FI_WAIT_NONE, 0);
    MUST(fi_ep_bind(session.endpoint, &session.cq->fid, FI_SELECTIVE_COMPLETION | FI_TRANSMIT | FI_RECV));
    MUST(fi_enable(session.endpoint));
    updated = open_counter(session.domain, FI_WAIT_UNSPEC);
    heap_mr = register_segment(heap, sizeof heap, HEAP_KEY);
    data_mr = register_segment((void *)data, sizeof data, DATA_KEY);
}

static void bind_counters(struct context *context)
{
    context->puts = open_counter(session.domain, build_counter_wait);
    context->gets = open_counter(session.domain, build_counter_wait);
    MUST(fi_ep_bind(context->endpoint, &context->stx->fid, 0));
    MUST(fi_ep_bind(context->endpoint, &context->puts->fid, FI_WRITE));
    MUST(fi_ep_bind(context->endpoint, &context->gets->fid, FI_READ));
}

static void learn_peers(void)
{
    exchange_segment(session.info, heap_mr, heap, heaps);
    exchange_segment(session.info, data_mr, (void *)data, datas);
    require(fi_atomicvalid(session.endpoint, FI_UINT64, FI_SUM, &(size_t){ 0 }) == 0, "fi_atomicvalid", 0);
    insert_names(session.endpoint, session.av, session.peers);
}

static void wait_for(struct fid_cntr *counter, uint64_t threshold)
{
    for (int i = 0; i < 100 && fi_cntr_read(counter) < threshold; i++)
        yield_to_others();
    if (build_counter_wait == FI_WAIT_NONE)
        WAIT_UNTIL(fi_cntr_read(counter) >= threshold, (void)0);
    else
        MUST(fi_cntr_wait(counter, threshold, -1));
    require(fi_cntr_readerr(counter) == 0, "an operation failed", 0);
}

/* Waits for all operations of a context, as shmem_quiet. */
static void quiet(struct context *context)
{
    wait_for(context->puts, context->put_count);
    wait_for(context->gets, context->get_count);
}

/* Waits for an update of a word of this rank, as shmem_wait_until. */
static void wait_until(enum way way, uint64_t value)
{
    for (;;) {
        uint64_t seen = fi_cntr_read(updated);
        if (data[way] == value)
            return;
        if (build_counter_wait == FI_WAIT_NONE)
            WAIT_UNTIL(fi_cntr_read(updated) > seen, (void)0);
        else
            MUST(fi_cntr_wait(updated, seen + 1, -1));
    }
}

#define CALL(context, call) POST(make_progress((context)->cq), call)

/* A put through a buffer of the library, which a completion gives back. */
static void put_bounced(struct context *context, uint64_t *operand, int to, uint64_t at, uint64_t flags)
{
    struct iovec local = { .iov_base = operand, .iov_len = sizeof *operand };
    struct fi_rma_iov place = { .addr = at, .len = sizeof *operand, .key = datas[to].key };
    struct fi_msg_rma message = { .msg_iov = &local, .iov_count = 1, .addr = session.peers[to],
                                  .rma_iov = &place, .rma_iov_count = 1, .context = operand };

    CALL(context, fi_writemsg(context->endpoint, &message, flags | FI_DELIVERY_COMPLETE));
    if (flags & FI_COMPLETION)
        require(next_completion(context->cq).op_context == operand, "another buffer", 0);
}

/* A signal, which comes after the put before it. */
static void put_signal(struct context *context, uint64_t *operand, int to, uint64_t at)
{
    struct fi_ioc local = { .addr = operand, .count = 1 };
    struct fi_rma_ioc place = { .addr = at, .count = 1, .key = datas[to].key };
    struct fi_msg_atomic message = { .msg_iov = &local, .iov_count = 1, .addr = session.peers[to],
                                     .rma_iov = &place, .rma_iov_count = 1, .datatype = FI_UINT64,
                                     .op = FI_ATOMIC_WRITE };

    put_bounced(context, operand, to, at, FI_INJECT);
    CALL(context, fi_atomicmsg(context->endpoint, &message, FI_DELIVERY_COMPLETE | FI_INJECT));
    context->put_count++;
}

static void update(struct context *context, enum way way, int to, uint64_t round)
{
    uint64_t operand = way == INJECTED_ADD || way == FETCHED_ADD ? 1 : round;
    uint64_t compare = round - 1, result = UINT64_MAX;
    uint64_t at = datas[to].base + way * sizeof(uint64_t), key = datas[to].key;
    struct fid_ep *ep = context->endpoint;
    fi_addr_t peer = session.peers[to];
    int fetches = way == FETCHED_ADD || way == SWAP || way == COMPARE_AND_SWAP;
    const enum fi_datatype type = FI_UINT64;
    enum fi_op op = way == SWAP ? FI_ATOMIC_WRITE : FI_SUM;

    if (way == PUT)
        CALL(context, fi_write(ep, &operand, sizeof operand, NULL, peer, at, key, NULL));
    else if (way == INJECTED_PUT)
        CALL(context, fi_inject_write(ep, &operand, sizeof operand, peer, at, key));
    else if (way == BOUNCED_PUT)
        put_bounced(context, &operand, to, at, FI_COMPLETION);
    else if (way == INJECTED_ADD)
        CALL(context, fi_inject_atomic(ep, &operand, 1, peer, at, key, type, op));
    else if (way == FETCHED_ADD || way == SWAP)
        CALL(context, fi_fetch_atomic(ep, &operand, 1, NULL, &result, NULL, peer, at, key, type, op, NULL));
    else if (way == COMPARE_AND_SWAP)
        CALL(context, fi_compare_atomic(ep, &operand, 1, NULL, &compare, NULL, &result, NULL, peer, at, key,
                                        type, FI_CSWAP, NULL));
    else
        put_signal(context, &operand, to, at);
    if (fetches)
        context->get_count++;
    else
        context->put_count++;
    quiet(context);
    require(!fetches || result == round - 1, "another value was fetched", (long)result);
}

/* Puts a large block at the next rank, and gets it back. */
static void move_heap(struct context *context, int to)
{
    static char from[LARGE_BYTES];
    uint64_t half = LARGE_BYTES / 2;

    fill(from, half, (unsigned)rank);
    CALL(context, fi_write(context->endpoint, from, half, NULL, session.peers[to], heaps[to].base, heaps[to].key,
                           NULL));
    context->put_count++;
    quiet(context);
    CALL(context, fi_read(context->endpoint, from + half, half, NULL, session.peers[to], heaps[to].base,
                          heaps[to].key, NULL));
    context->get_count++;
    quiet(context);
    require_filled(from + half, half, (unsigned)rank);
}

/* One endpoint does everything. What it needs to send is bound after it was enabled. */
void run_openshmem(struct fi_info *hints)
{
    struct context context = { 0 };
    int next = (rank + 1) % ranks;
    const uint64_t updates = (uint64_t)ROUNDS * (WAYS + 1) + 1;

    open_target(hints);
    MUST(fi_stx_context(session.domain, NULL, &context.stx, NULL));
    session.info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
    context.cq = session.cq;
    context.endpoint = session.endpoint;
    bind_counters(&context);
    require(fi_ep_bind(context.endpoint, &context.gets->fid, FI_WRITE) == -FI_EBUSY, "a second counter", 0);
    learn_peers();
    barrier(NULL);

    for (uint64_t round = 1; round <= ROUNDS; round++)
        for (enum way way = 0; way < WAYS; way++) {
            update(&context, way, next, round);
            wait_until(way, round);
        }
    move_heap(&context, next);
    wait_for(updated, updates);
    require(fi_cntr_read(updated) == updates, "accesses were counted twice", (long)fi_cntr_read(updated));
    require(fi_cntr_read(context.puts) == context.put_count, "puts were counted twice", 0);
    require(fi_cntr_read(context.gets) == context.get_count, "gets were counted twice", 0);
    barrier(session.cq);

    CLOSE(context.stx);
    CLOSE(heap_mr);
    CLOSE(data_mr);
    CLOSE_OPEN(session.endpoint);
    CLOSE(context.puts);
    CLOSE(context.gets);
    CLOSE_OPEN(session.cq);
    CLOSE(updated);
    close_session(&session);
}
