/* MPI libraries: tagged messages with Open MPI's mtl, and puts, gets and atomic operations with its btl. */

#include "driver.h"

enum { MESSAGES = 200, LARGE_BYTES = 1 << 20, COLLECTIVE_TAG = 5 };
#define SYNCHRONOUS (1ULL << 62)
#define ACKNOWLEDGED (1ULL << 63)
#define SOURCE_MASK (SYNCHRONOUS | 0x7fff00000000ULL)

static struct session session;
static char from[LARGE_BYTES], to[LARGE_BYTES];

static void open_objects(struct fi_info *hints, enum fi_cq_format format)
{
    open_domain(&session, hints);
    MUST(fi_endpoint(session.domain, session.info, &session.endpoint, NULL));
    session.av = open_av(session.domain, FI_AV_MAP, (size_t)ranks);
    MUST(fi_ep_bind(session.endpoint, &session.av->fid, 0));
    session.cq = open_cq(session.domain, format, FI_WAIT_NONE, 0);
    MUST(fi_ep_bind(session.endpoint, &session.cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
    MUST(fi_enable(session.endpoint));
    insert_names(session.endpoint, session.av, session.peers);
}

struct fi_info *ompi_mtl_hints(void)
{
    struct fi_info *hints = new_hints(FI_MSG | FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV);

    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->tx_attr->op_flags = hints->rx_attr->op_flags = FI_COMPLETION;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->cq_data_size = 4;
    hints->domain_attr->av_type = FI_AV_MAP;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    return hints;
}

/* A receive from the other rank, whose tag may have the bit of a synchronous send. */
static void post_receive(void *buffer, size_t len_bytes, uint64_t tag, struct fi_context2 *context)
{
    POST(make_progress(session.cq), fi_trecv(session.endpoint, buffer, len_bytes, NULL, session.peers[1 - rank], tag,
                                             SOURCE_MASK, context));
}

void run_ompi_mtl(struct fi_info *hints)
{
    static struct fi_context2 sends[MESSAGES], receives[MESSAGES], extra[3];
    static char out[MESSAGES][4096], in[MESSAGES][4096];
    size_t inject_bytes;
    int sent = 0;

    open_objects(hints, FI_CQ_FORMAT_TAGGED);
    inject_bytes = session.info->tx_attr->inject_size;
    for (int i = 0; i < MESSAGES; i++)
        post_receive(in[i], sizeof in[i], (uint64_t)i, &receives[i]);
    for (int i = 0; i < MESSAGES; i++) {
        size_t len_bytes = (size_t)i * 53 % sizeof out[i];
        fi_addr_t peer = session.peers[1 - rank];

        fill(out[i], len_bytes, (unsigned)i);
        if (len_bytes <= inject_bytes) {
            POST(make_progress(session.cq), fi_tinjectdata(session.endpoint, out[i], len_bytes, (uint64_t)rank, peer,
                                                           (uint64_t)i));
        } else {
            POST(make_progress(session.cq), fi_tsenddata(session.endpoint, out[i], len_bytes, NULL, (uint64_t)rank,
                                                         peer, (uint64_t)i, &sends[i]));
            sent++;
        }
    }
    for (int i = 0; i < MESSAGES + sent; i++) {
        struct fi_cq_tagged_entry entry = next_completion(session.cq);

        if (!(entry.flags & FI_RECV))
            continue;
        require(entry.data == (uint64_t)(1 - rank), "the rank of the sender", (long)entry.data);
        require_filled(in[(struct fi_context2 *)entry.op_context - receives], entry.len, (unsigned)entry.tag);
    }

    /* A large synchronous send, which the receiver acknowledges by a message of no bytes. */
    post_receive(NULL, 0, ACKNOWLEDGED, &extra[0]);
    fill(from, LARGE_BYTES, (unsigned)rank);
    POST(make_progress(session.cq), fi_tsenddata(session.endpoint, from, LARGE_BYTES, NULL, (uint64_t)rank,
                                                 session.peers[1 - rank], SYNCHRONOUS | 1, &extra[1]));

    /* A probe for it, then the receive. */
    struct fi_msg_tagged probe = { .addr = session.peers[1 - rank], .tag = 1, .ignore = SOURCE_MASK,
                                   .context = &extra[2] };
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error;
    int is_found = 0, ended = 0;

    POST(make_progress(session.cq), fi_trecvmsg(session.endpoint, &probe, FI_PEEK | FI_COMPLETION));
    while (!is_found) {
        ssize_t result;

        WAIT_UNTIL((result = fi_cq_read(session.cq, &entry, 1)) != -FI_EAGAIN, (void)0);
        if (result == -FI_EAVAIL) {
            memset(&error, 0, sizeof error);
            require(fi_cq_readerr(session.cq, &error, 0) == 1, "fi_cq_readerr", 0);
            require(error.err == FI_ENOMSG && error.op_context == &extra[2], "another error", -error.err);
            POST(make_progress(session.cq), fi_trecvmsg(session.endpoint, &probe, FI_PEEK | FI_COMPLETION));
        } else if (entry.op_context == &extra[2]) {
            require(entry.len == LARGE_BYTES && entry.tag == (SYNCHRONOUS | 1), "another message", (long)entry.len);
            is_found = 1;
        } else {
            ended++;
        }
    }
    post_receive(to, sizeof to, 1, &extra[2]);
    while (ended < 3) {
        entry = next_completion(session.cq);
        ended++;
        if (entry.op_context == &extra[2])
            POST(make_progress(session.cq), fi_tinject(session.endpoint, NULL, 0, session.peers[1 - rank],
                                                       ACKNOWLEDGED));
    }
    require_filled(to, LARGE_BYTES, (unsigned)(1 - rank));

    /* A receive that is cancelled. */
    post_receive(to, sizeof to, COLLECTIVE_TAG << 8, &extra[0]);
    MUST(fi_cancel(&session.endpoint->fid, &extra[0]));
    require(next_failure(session.cq, FI_ECANCELED) == &extra[0], "another receive", 0);
    barrier(session.cq);
    for (int i = 0; i < ranks; i++)
        MUST(fi_av_remove(session.av, &session.peers[i], 1, 0));
    CLOSE(session.endpoint);
    CLOSE(session.av);
    session.endpoint = NULL;
    session.av = NULL;
    close_session(&session);
}

struct fi_info *ompi_btl_hints(void)
{
    struct fi_info *hints = new_hints(FI_RMA | FI_ATOMIC);

    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ENDPOINT;
    hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_UNSPEC;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->tx_attr->iov_limit = hints->rx_attr->iov_limit = 1;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE | FI_COMPLETION;
    hints->rx_attr->op_flags = FI_COMPLETION;
    return hints;
}

void run_ompi_btl(struct fi_info *hints)
{
    struct segment mine, all[RANKS_MAX];
    static uint64_t words[4], one = 1, old, compare;
    struct fi_context2 context;
    struct iovec iovs[] = { { to, sizeof to }, { words, sizeof words } };
    struct fi_mr_attr attr = { .iov_count = 1, .access = FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE |
                                                         FI_REMOTE_READ | FI_REMOTE_WRITE };
    struct fid_mr *mrs[2];
    struct segment remotes[2];

    open_objects(hints, FI_CQ_FORMAT_CONTEXT);
    for (int i = 0; i < 2; i++) {
        attr.mr_iov = &iovs[i];
        attr.requested_key = (uint64_t)i;
        MUST(fi_mr_regattr(session.domain, &attr, 0, &mrs[i]));
        bind_region(session.info, mrs[i], session.endpoint);
        mine = (struct segment){ .key = fi_mr_key(mrs[i]), .base = base_of(session.info, iovs[i].iov_base) };
        exchange(&mine, sizeof mine, all);
        remotes[i] = all[1 - rank];
    }

    fi_addr_t peer = session.peers[1 - rank];
    struct fid_ep *ep = session.endpoint;
    fill(from, LARGE_BYTES, (unsigned)rank);
    POST(make_progress(session.cq), fi_write(ep, from, LARGE_BYTES, fi_mr_desc(mrs[0]), peer, remotes[0].base,
                                             remotes[0].key, &context));
    await_completions(session.cq, 1);
    memset(from, 0, LARGE_BYTES);
    POST(make_progress(session.cq), fi_read(ep, from, LARGE_BYTES, fi_mr_desc(mrs[0]), peer, remotes[0].base,
                                            remotes[0].key, &context));
    await_completions(session.cq, 1);
    require_filled(from, LARGE_BYTES, (unsigned)rank);
    for (uint64_t i = 0; i < 100; i++) {
        POST(make_progress(session.cq), fi_fetch_atomic(ep, &one, 1, NULL, &old, NULL, peer, remotes[1].base,
                                                        remotes[1].key, FI_UINT64, FI_SUM, &context));
        await_completions(session.cq, 1);
        require(old == i, "another value was fetched", (long)old);
        POST(make_progress(session.cq), fi_atomic(ep, &one, 1, NULL, peer, remotes[1].base + 8, remotes[1].key,
                                                  FI_UINT64, FI_SUM, &context));
        await_completions(session.cq, 1);
    }
    compare = 100;
    POST(make_progress(session.cq), fi_compare_atomic(ep, &one, 1, NULL, &compare, NULL, &old, NULL, peer,
                                                      remotes[1].base, remotes[1].key, FI_UINT64, FI_CSWAP,
                                                      &context));
    await_completions(session.cq, 1);
    require(old == 100, "the value that was compared", (long)old);
    barrier(session.cq);
    require(words[0] == 1 && words[1] == 100, "the words of this rank", (long)words[0]);

    for (int i = 0; i < 2; i++)
        CLOSE(mrs[i]);
    close_session(&session);
}
