/* MPICH's ch4 over libfabric, and Intel MPI, which is made from it: messages with their source, active messages in
 * large buffers, and windows of memory. Intel MPI has no sources; it was watched while it ran. */

#include "driver.h"

enum { MESSAGES = 200, MESSAGE_BYTES_MAX = 4096, AM_BUFFERS = 4, AM_BUFFER_BYTES = 1 << 20, AM_BYTES_MAX = 16384,
       LONG_BYTES = 1 << 19, WINDOW_BYTES = 1 << 18, COUNTER_ROUNDS = 1000 };
/* The bits of a tag: the protocol, the communicator, and the program's tag. */
#define PROTOCOL_SHIFT 51
#define CONTEXT_SHIFT 31
#define TAG_MASK ((1ULL << CONTEXT_SHIFT) - 1)
#define SYNCHRONOUS (8ULL << PROTOCOL_SHIFT)
#define PROTOCOL_MASK (24ULL << PROTOCOL_SHIFT)
#define WORLD (1ULL << CONTEXT_SHIFT)
#define SOURCE_SHIFT 40
#define SOURCE_MASK (0xffULL << SOURCE_SHIFT)
#define ATOMIC_ORDER (FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)

enum state { PENDING, DONE, NOT_FOUND, CANCELLED };

struct request {
    struct fi_context2 context;
    enum state state;
    struct fi_cq_tagged_entry entry;
};

/* An active message: asks the receiver to read memory, or says that it has. */
struct active_message {
    int is_answer;
    struct segment memory;
};

/* In what the programs differ. */
struct variant {
    enum fi_av_type av_type;
    /* The source of a message is in its tag instead of its data. */
    int has_source_in_tag;
    /* Windows have endpoints of their own, which share a transmit context. */
    int shares_contexts;
    /* Buffers are cancelled before the end. */
    int cancels_buffers;
};

static const struct variant *variant;
static struct session session;
static struct fid_cntr *counter;
static struct request am_requests[AM_BUFFERS];
static char am_buffers[AM_BUFFERS][AM_BUFFER_BYTES];
static struct active_message am_arrived;
static int am_count;

/* MPICH first asks without hints, and makes its hints from the provider that does most of what it can use. */
struct fi_info *mpich_hints(void)
{
    uint64_t useful = FI_TAGGED | FI_MSG | FI_MULTI_RECV | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV;
    struct fi_info *list, *best, *hints;
    uint64_t caps;

    MUST(fi_getinfo(fi_version(), NULL, NULL, 0, NULL, &list));
    for (best = list; best; best = best->next)
        if (best->ep_attr->type == FI_EP_RDM && (best->caps & useful) == useful &&
            best->domain_attr->cq_data_size >= 4)
            break;
    require(best != NULL, "a provider for all that MPICH uses", 0);
    caps = best->caps;
    hints = new_hints(caps);
    hints->fabric_attr->prov_name = strdup(best->fabric_attr->prov_name);
    hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_ASYNC_IOV | FI_RX_CQ_DATA;
    hints->domain_attr->mode = FI_RESTRICTED_COMP;
    hints->domain_attr->cq_data_size = 4;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->domain_attr->mr_mode = (best->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)) |
                                  FI_MR_HMEM | FI_MR_ENDPOINT;
    hints->tx_attr->op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
    hints->tx_attr->msg_order = FI_ORDER_SAS | ATOMIC_ORDER;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->op_flags = FI_COMPLETION;
    hints->ep_attr->mem_tag_format = PROTOCOL_MASK | TAG_MASK;
    fi_freeinfo(list);
    return hints;
}

/* Intel MPI asks for the format of the addresses that it was offered first, and for no data. */
struct fi_info *intel_mpi_hints(void)
{
    struct fi_info *hints = mpich_hints(), *list;

    MUST(fi_getinfo(fi_version(), NULL, NULL, 0, NULL, &list));
    hints->addr_format = list->addr_format;
    fi_freeinfo(list);
    hints->domain_attr->cq_data_size = 0;
    hints->domain_attr->av_type = FI_AV_MAP;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->ep_attr->mem_tag_format = 0;
    return hints;
}

static void post_am_buffer(int i)
{
    struct iovec iov = { .iov_base = am_buffers[i], .iov_len = AM_BUFFER_BYTES };
    struct fi_msg message = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
                              .context = &am_requests[i].context };

    POST((void)0, fi_recvmsg(session.endpoint, &message, FI_MULTI_RECV | FI_COMPLETION));
}

static void handle_failure(void)
{
    struct fi_cq_err_entry error = { 0 };
    struct request *request;

    require(fi_cq_readerr(session.cq, &error, 0) == 1, "fi_cq_readerr", 0);
    require(error.err == FI_ENOMSG || error.err == FI_ECANCELED, "an operation failed", -error.err);
    request = error.op_context;
    request->state = error.err == FI_ENOMSG ? NOT_FOUND : CANCELLED;
}

static void progress(void)
{
    struct fi_cq_tagged_entry entries[8];
    ssize_t count = fi_cq_read(session.cq, entries, 8);

    if (count == -FI_EAVAIL) {
        handle_failure();
        return;
    }
    require(count > 0 || count == -FI_EAGAIN, "fi_cq_read", count);
    for (ssize_t i = 0; i < count; i++) {
        struct request *request = entries[i].op_context;

        if (request < am_requests || request >= am_requests + AM_BUFFERS) {
            request->entry = entries[i];
            request->state = DONE;
            continue;
        }
        if (entries[i].len) {
            memcpy(&am_arrived, entries[i].buf, sizeof am_arrived);
            am_count++;
        }
        if (entries[i].flags & FI_MULTI_RECV)
            post_am_buffer((int)(request - am_requests));
    }
}

#define AWAIT(request) WAIT_UNTIL((request)->state != PENDING, progress())

static void meet(void)
{
    barrier(session.cq);
}

static void open_objects(struct fi_info *hints)
{
    struct fi_cntr_attr counter_attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
    size_t least = AM_BYTES_MAX, name_len_bytes = NAME_MAX_BYTES;
    char name[NAME_MAX_BYTES];

    open_domain(&session, hints);
    require(session.info->domain_attr->threading == FI_THREAD_DOMAIN, "the threading", 0);
    session.av = open_av(session.domain, variant->av_type, (size_t)ranks);
    MUST(fi_cntr_open(session.domain, &counter_attr, &counter, NULL));
    session.cq = open_cq(session.domain, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, 0);
    MUST(fi_endpoint(session.domain, session.info, &session.endpoint, NULL));
    MUST(fi_ep_bind(session.endpoint, &session.av->fid, 0));
    MUST(fi_ep_bind(session.endpoint, &session.cq->fid, FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION));
    MUST(fi_ep_bind(session.endpoint, &counter->fid, FI_READ | FI_WRITE));
    MUST(fi_enable(session.endpoint));
    MUST(fi_getname(&session.endpoint->fid, name, &name_len_bytes));
    require(fi_av_insert(session.av, name, 1, &session.peers[rank], 0, NULL) == 1, "its own address", 0);
    MUST(fi_setopt(&session.endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
    for (int i = 0; i < AM_BUFFERS; i++)
        post_am_buffer(i);
    insert_names(session.endpoint, session.av, session.peers);
}

/* Which atomic operations there are. MPICH uses those of a type only if it is told so here. */
static void require_atomics(void)
{
    int sums = 0;

    for (int type = 0; type < FI_DATATYPE_LAST; type++)
        for (int op = 0; op < FI_ATOMIC_OP_LAST; op++) {
            int results[3];
            size_t counts[3] = { 0 };

            results[0] = fi_atomicvalid(session.endpoint, type, op, &counts[0]);
            results[1] = fi_fetch_atomicvalid(session.endpoint, type, op, &counts[1]);
            results[2] = fi_compare_atomicvalid(session.endpoint, type, op, &counts[2]);
            for (int i = 0; i < 3; i++)
                require(results[i] == 0 ? counts[i] > 0 : results[i] == -FI_EOPNOTSUPP, "an atomic operation",
                        results[i]);
            sums += op == FI_SUM && results[0] == 0 && results[1] == 0;
        }
    require(sums >= 10, "sums of numbers", sums);
}

/* The tag of a message from a rank. */
static uint64_t tag_from(int source, uint64_t tag)
{
    return WORLD | tag | (variant->has_source_in_tag ? (uint64_t)source << SOURCE_SHIFT : 0);
}

static void post_receive(struct request *request, void *buffer, size_t len_bytes, fi_addr_t from, uint64_t tag)
{
    uint64_t ignored = PROTOCOL_MASK | (from == FI_ADDR_UNSPEC ? SOURCE_MASK : 0);

    request->state = PENDING;
    POST(progress(), fi_trecv(session.endpoint, buffer, len_bytes, NULL, from, tag_from(1 - rank, tag), ignored,
                              &request->context));
}

static void send_with_source_in_tag(struct request *request, const void *bytes, size_t len_bytes, uint64_t tag)
{
    fi_addr_t peer = session.peers[1 - rank];

    request->state = len_bytes <= session.info->tx_attr->inject_size ? DONE : PENDING;
    if (request->state == DONE)
        POST(progress(), fi_tinject(session.endpoint, bytes, len_bytes, peer, tag_from(rank, tag)));
    else
        POST(progress(), fi_tsend(session.endpoint, bytes, len_bytes, NULL, peer, tag_from(rank, tag),
                                  &request->context));
}

static void send_message(struct request *request, const void *bytes, size_t len_bytes, uint64_t tag)
{
    fi_addr_t peer = session.peers[1 - rank];

    if (len_bytes <= session.info->tx_attr->inject_size) {
        request->state = DONE;
        POST(progress(), fi_tinjectdata(session.endpoint, bytes, len_bytes, (uint64_t)rank, peer, WORLD | tag));
        return;
    }
    request->state = PENDING;
    POST(progress(), fi_tsenddata(session.endpoint, bytes, len_bytes, NULL, (uint64_t)rank, peer, WORLD | tag,
                                  &request->context));
}

static void pass_messages(void)
{
    static char out[MESSAGES][MESSAGE_BYTES_MAX], in[MESSAGES][MESSAGE_BYTES_MAX];
    static struct request sends[MESSAGES], receives[MESSAGES];

    /* Every other receive is from any source. */
    for (int i = 0; i < MESSAGES; i++)
        post_receive(&receives[i], in[i], MESSAGE_BYTES_MAX, i % 2 ? session.peers[1 - rank] : FI_ADDR_UNSPEC,
                     (uint64_t)i);
    for (int i = 0; i < MESSAGES; i++) {
        fill(out[i], (size_t)i * 19, (unsigned)i);
        if (variant->has_source_in_tag)
            send_with_source_in_tag(&sends[i], out[i], (size_t)i * 19, (uint64_t)i);
        else
            send_message(&sends[i], out[i], (size_t)i * 19, (uint64_t)i);
    }
    for (int i = 0; i < MESSAGES; i++) {
        uint64_t source;

        AWAIT(&receives[i]);
        AWAIT(&sends[i]);
        require(receives[i].entry.len == (size_t)i * 19, "the length", (long)receives[i].entry.len);
        source = variant->has_source_in_tag ? receives[i].entry.tag >> SOURCE_SHIFT : receives[i].entry.data;
        require(source == (uint64_t)(1 - rank), "the source", (long)source);
        require_filled(in[i], receives[i].entry.len, (unsigned)i);
    }
}

/* MPI_Improbe until there is a message, then MPI_Mrecv of it in two pieces. The send is of two pieces, too, and
 * synchronous: a message of no bytes answers it. */
static void claim_message(void)
{
    static char out[LONG_BYTES], in[LONG_BYTES];
    struct request sent = { 0 }, answered, claimed;
    fi_addr_t peer = session.peers[1 - rank];
    struct iovec iovs[] = { { out, 1000 }, { out + 1000, LONG_BYTES - 1000 } };
    struct fi_msg_tagged send = { .msg_iov = iovs, .iov_count = 2, .addr = peer, .tag = WORLD | SYNCHRONOUS | 7,
                                  .data = (uint64_t)rank, .context = &sent.context };
    struct fi_msg_tagged receive = { .addr = peer, .tag = WORLD | 7, .ignore = PROTOCOL_MASK,
                                     .context = &claimed.context };

    post_receive(&answered, NULL, 0, peer, 8);
    fill(out, sizeof out, (unsigned)rank);
    POST(progress(), fi_tsendmsg(session.endpoint, &send, FI_COMPLETION | FI_REMOTE_CQ_DATA));
    do {
        claimed.state = PENDING;
        POST(progress(), fi_trecvmsg(session.endpoint, &receive, FI_PEEK | FI_CLAIM | FI_COMPLETION));
        AWAIT(&claimed);
    } while (claimed.state == NOT_FOUND);
    require(claimed.entry.len == LONG_BYTES && claimed.entry.tag == send.tag, "another message",
            (long)claimed.entry.len);
    iovs[0] = (struct iovec){ in, 5000 };
    iovs[1] = (struct iovec){ in + 5000, LONG_BYTES - 5000 };
    receive.msg_iov = iovs;
    receive.iov_count = 2;
    claimed.state = PENDING;
    POST(progress(), fi_trecvmsg(session.endpoint, &receive, FI_CLAIM | FI_COMPLETION));
    AWAIT(&claimed);
    require_filled(in, sizeof in, (unsigned)(1 - rank));
    POST(progress(), fi_tinjectdata(session.endpoint, NULL, 0, (uint64_t)rank, peer, WORLD | 8));
    AWAIT(&answered);
    AWAIT(&sent);

    post_receive(&claimed, in, sizeof in, peer, 9);
    MUST(fi_cancel(&session.endpoint->fid, &claimed.context));
    AWAIT(&claimed);
    require(claimed.state == CANCELLED, "a receive that was cancelled", claimed.state);
}

static struct fid_mr *register_memory(void *memory, size_t len_bytes, uint64_t access, uint64_t key,
                                      struct fid_ep *endpoint)
{
    struct fid_mr *mr;

    if (session.info->domain_attr->mr_mode & FI_MR_PROV_KEY)
        key = 0;
    MUST(fi_mr_reg(session.domain, memory, len_bytes, access, 0, key, 0, &mr, NULL));
    bind_region(session.info, mr, endpoint);
    return mr;
}

/* A long active message: its receiver reads it, and says so. */
static void read_long_message(void)
{
    static char out[LONG_BYTES], in[LONG_BYTES];
    struct fid_mr *mr = register_memory(out, sizeof out, FI_REMOTE_READ, 0, session.endpoint);
    struct active_message message = { .memory = { .key = fi_mr_key(mr), .base = base_of(session.info, out) } };
    struct request sent = { 0 }, read = { 0 };
    fi_addr_t peer = session.peers[1 - rank];

    fill(out, sizeof out, (unsigned)rank);
    POST(progress(), fi_send(session.endpoint, &message, sizeof message, NULL, peer, &sent.context));
    WAIT_UNTIL(am_count == 1, progress());
    require(!am_arrived.is_answer, "an answer without a question", 0);
    POST(progress(), fi_read(session.endpoint, in, sizeof in, NULL, peer, am_arrived.memory.base,
                             am_arrived.memory.key, &read.context));
    AWAIT(&read);
    AWAIT(&sent);
    require_filled(in, sizeof in, (unsigned)(1 - rank));
    meet();
    message.is_answer = 1;
    POST(progress(), fi_inject(session.endpoint, &message, sizeof message, peer));
    WAIT_UNTIL(am_count == 2, progress());
    require(am_arrived.is_answer, "no answer", 0);
    CLOSE(mr);
}

/* A window. With shared contexts it has an endpoint and a counter of its own, else those of the rank. */
struct window {
    struct fid_ep *endpoint;
    struct fid_cntr *counter;
    struct fid_mr *mr;
    struct segment there;
    uint64_t issued;
};

static char memory[WINDOW_BYTES];

static struct fid_stx *open_stx(void)
{
    struct fi_tx_attr attr = { .caps = FI_RMA | FI_WRITE | FI_READ | FI_ATOMIC,
                               .msg_order = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW,
                               .op_flags = FI_DELIVERY_COMPLETE | FI_COMPLETION };
    struct fid_stx *stx;

    MUST(fi_stx_context(session.domain, &attr, &stx, NULL));
    return stx;
}

static void open_window_endpoint(struct window *window, struct fid_stx *stx)
{
    struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
    struct fi_info *info = fi_dupinfo(session.info);

    info->caps = info->tx_attr->caps = FI_RMA | FI_WRITE | FI_READ | FI_ATOMIC;
    info->tx_attr->msg_order = ATOMIC_ORDER;
    info->rx_attr->caps = 0;
    info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
    info->ep_attr->rx_ctx_cnt = 0;
    MUST(fi_endpoint(session.domain, info, &window->endpoint, NULL));
    MUST(fi_cntr_open(session.domain, &attr, &window->counter, NULL));
    MUST(fi_ep_bind(window->endpoint, &window->counter->fid, FI_READ | FI_WRITE));
    MUST(fi_ep_bind(window->endpoint, &stx->fid, 0));
    MUST(fi_ep_bind(window->endpoint, &session.cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION));
    MUST(fi_ep_bind(window->endpoint, &session.av->fid, 0));
    MUST(fi_enable(window->endpoint));
    fi_freeinfo(info);
}

static void open_window(struct window *window, struct fid_stx *stx, uint64_t number)
{
    uint64_t key = (1ULL << (session.info->domain_attr->mr_key_size * 8 - 1)) | number;
    struct segment mine, all[RANKS_MAX];

    if (stx) {
        open_window_endpoint(window, stx);
    } else {
        window->endpoint = session.endpoint;
        window->counter = counter;
        window->issued = fi_cntr_read(counter);
    }
    window->mr = register_memory(memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, key, window->endpoint);
    mine = (struct segment){ .key = fi_mr_key(window->mr), .base = base_of(session.info, memory) };
    exchange(&mine, sizeof mine, all);
    window->there = all[1 - rank];
}

/* Waits for all accesses. The wait for the counter is of no time. */
static void flush(struct window *window)
{
    int rounds = 0;

    step = "the accesses of a window";
    while (fi_cntr_read(window->counter) < window->issued) {
        progress();
        if (++rounds % COUNTER_ROUNDS == 0) {
            int result = fi_cntr_wait(window->counter, window->issued, 0);

            require(result == 0 || result == -FI_ETIMEDOUT, "fi_cntr_wait", result);
            yield_to_others();
        }
    }
    require(fi_cntr_read(window->counter) == window->issued, "more accesses than were issued", 0);
    require(fi_cntr_readerr(window->counter) == 0, "an access failed", 0);
}

static void put_and_get(struct window *window, char *local)
{
    fi_addr_t peer = session.peers[1 - rank];
    struct iovec iov = { .iov_base = local + 64, .iov_len = WINDOW_BYTES - 64 };
    struct fi_rma_iov place = { .addr = window->there.base + 64, .len = WINDOW_BYTES - 64, .key = window->there.key };
    struct fi_msg_rma put = { .msg_iov = &iov, .iov_count = 1, .addr = peer, .rma_iov = &place, .rma_iov_count = 1 };
    struct request got = { 0 };

    fill(local, WINDOW_BYTES, (unsigned)rank);
    for (uint64_t at = 0; at < 64; at += 8, window->issued++)
        POST(progress(), fi_inject_write(window->endpoint, local + at, 8, peer, window->there.base + at,
                                         window->there.key));
    POST(progress(), fi_writemsg(window->endpoint, &put, FI_DELIVERY_COMPLETE));
    window->issued++;
    flush(window);
    meet();
    require_filled(memory, sizeof memory, (unsigned)(1 - rank));

    /* A get with a request, which the completion of the access ends. */
    memset(local, 0, WINDOW_BYTES);
    iov = (struct iovec){ local, WINDOW_BYTES };
    place.addr = window->there.base;
    place.len = WINDOW_BYTES;
    put.context = &got.context;
    POST(progress(), fi_readmsg(window->endpoint, &put, FI_COMPLETION | FI_DELIVERY_COMPLETE));
    window->issued++;
    AWAIT(&got);
    flush(window);
    require_filled(local, WINDOW_BYTES, (unsigned)rank);
    meet();
}

static void accumulate(struct window *window)
{
    uint64_t values[4] = { 1, 2, 3, 4 }, old[4], compare = 100, swapped;
    struct fi_ioc origin = { values, 4 }, result = { old, 4 }, compared = { &compare, 1 };
    struct fi_ioc previous = { &swapped, 1 };
    struct fi_rma_ioc place = { .addr = window->there.base, .count = 4, .key = window->there.key };
    struct fi_msg_atomic message = { .msg_iov = &origin, .iov_count = 1, .addr = session.peers[1 - rank],
                                     .rma_iov = &place, .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM };
    uint64_t *words = (uint64_t *)memory;

    memset(memory, 0, sizeof memory);
    meet();
    for (uint64_t i = 0; i < 50; i++) {
        POST(progress(), fi_atomicmsg(window->endpoint, &message, FI_DELIVERY_COMPLETE));
        POST(progress(), fi_fetch_atomicmsg(window->endpoint, &message, &result, NULL, 1, FI_DELIVERY_COMPLETE));
        window->issued += 2;
        flush(window);
        require(old[3] == (2 * i + 1) * 4, "another value was fetched", (long)old[3]);
    }
    origin.count = place.count = 1;
    message.op = FI_CSWAP;
    POST(progress(), fi_compare_atomicmsg(window->endpoint, &message, &compared, NULL, 1, &previous, NULL, 1, 0));
    window->issued++;
    flush(window);
    require(swapped == 100, "the value that was compared", (long)swapped);
    meet();
    require(words[0] == 1 && words[1] == 200 && words[3] == 400, "the words of this rank", (long)words[0]);
}

static void cancel_am_buffers(void)
{
    for (int i = 0; i < AM_BUFFERS; i++) {
        am_requests[i].state = PENDING;
        MUST(fi_cancel(&session.endpoint->fid, &am_requests[i].context));
        AWAIT(&am_requests[i]);
        require(am_requests[i].state == CANCELLED, "a buffer that was cancelled", am_requests[i].state);
    }
}

static void run_ch4(struct fi_info *hints, const struct variant *of_program)
{
    static char local[WINDOW_BYTES];
    struct window windows[2] = { 0 };
    struct fid_stx *stx = NULL;

    variant = of_program;
    open_objects(hints);
    require_atomics();
    pass_messages();
    if (!variant->has_source_in_tag)
        claim_message();
    read_long_message();
    if (variant->shares_contexts)
        stx = open_stx();
    for (int i = 0; i < 2; i++) {
        open_window(&windows[i], stx, (uint64_t)i + 1);
        put_and_get(&windows[i], local);
        accumulate(&windows[i]);
    }
    for (int i = 0; i < 2; i++) {
        meet();
        if (stx) {
            CLOSE(windows[i].endpoint);
            CLOSE(windows[i].counter);
        }
        CLOSE(windows[i].mr);
    }

    if (variant->cancels_buffers)
        cancel_am_buffers();
    CLOSE(session.endpoint);
    CLOSE(session.cq);
    CLOSE(session.av);
    CLOSE(counter);
    /* MPICH closes the domain before the transmit context that the windows shared. */
    CLOSE(session.domain);
    if (stx)
        CLOSE(stx);
    CLOSE(session.fabric);
    fi_freeinfo(session.info);
}

void run_mpich(struct fi_info *hints)
{
    run_ch4(hints, &(struct variant){ .av_type = FI_AV_TABLE });
}

/* With MPIR_CVAR_CH4_OFI_ENABLE_SHARED_CONTEXTS. */
void run_mpich_shared_contexts(struct fi_info *hints)
{
    run_ch4(hints, &(struct variant){ .av_type = FI_AV_TABLE, .shares_contexts = 1 });
}

void run_intel_mpi(struct fi_info *hints)
{
    run_ch4(hints, &(struct variant){ .av_type = FI_AV_MAP, .has_source_in_tag = 1, .cancels_buffers = 1 });
}
