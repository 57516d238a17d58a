/* NIXL, which moves the tensors of accelerators between hosts, here in host memory. */

#include "driver.h"

static struct session session;

static struct fid_mr *register_memory(void *memory, size_t len_bytes, uint64_t access, uint64_t key)
{
    struct iovec iov = { .iov_base = memory, .iov_len = len_bytes };
    struct fi_mr_attr attr = { .mr_iov = &iov, .iov_count = 1, .access = access, .requested_key = key,
                               .iface = FI_HMEM_SYSTEM };
    struct fid_mr *mr;

    MUST(fi_mr_regattr(session.domain, &attr, 0, &mr));
    bind_region(session.info, mr, session.endpoint);
    return mr;
}

/* NIXL: it looks for devices first, then asks for each by its name. Writes carry the number of their transfer, and a
 * message tells how many there are. */

enum { NOTICES = 256, NOTICE_BYTES = 8192, DESCRIPTORS = 100, PIECE_BYTES = 8192, MORE_BATCH = 16, TRANSFERS = 4 };
/* Immediate data: what a message is for, and the number of its transfer. */
enum { IS_NOTICE = 2, IS_TRANSFER = 4, TRANSFER_SHIFT = 12 };

static char notices[NOTICES + 1][NOTICE_BYTES];
static struct fi_context notice_contexts[NOTICES + 1];
static struct fid_mr *notice_mr;
static char source[DESCRIPTORS * PIECE_BYTES], target[DESCRIPTORS * PIECE_BYTES];
/* By transfer: how many writes have arrived, and how many are to arrive as the notice says. */
static int written[TRANSFERS], announced[TRANSFERS];
static int completed;

struct fi_info *nixl_hints(void)
{
    struct fi_info *hints = new_hints(FI_MSG | FI_RMA | FI_LOCAL_COMM | FI_REMOTE_COMM);

    hints->mode = FI_CONTEXT;
    /* All modes but the two of old, as fi_info asks. */
    hints->domain_attr->mr_mode = ~3;
    return hints;
}

/* Looks for the device again, as NIXL does for each of its rails. */
static struct fi_info *query_rail(struct fi_info *found)
{
    struct fi_info *hints = nixl_hints(), *info;

    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED;
    hints->domain_attr->name = strdup(found->domain_attr->name);
    hints->domain_attr->threading = FI_THREAD_COMPLETION;
    hints->caps |= FI_HMEM;
    require_unmet(FI_VERSION(1, 18), hints);
    hints->caps &= ~FI_HMEM;
    info = query(hints);
    require(!strcmp(info->domain_attr->name, found->domain_attr->name), "the name of the domain", 0);
    require(info->domain_attr->threading == FI_THREAD_COMPLETION, "the threading", 0);
    fi_freeinfo(found);
    return info;
}

static void post_notice(int i)
{
    struct iovec iov = { .iov_base = notices[i], .iov_len = NOTICE_BYTES };
    void *desc = fi_mr_desc(notice_mr);
    struct fi_msg message = { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
                              .context = &notice_contexts[i] };

    MUST(fi_recvmsg(session.endpoint, &message, 0));
}

static void progress(void)
{
    struct fi_cq_data_entry entries[16];
    ssize_t count = read_entries(session.cq, entries, 16);

    for (ssize_t i = 0; i < count; i++) {
        struct fi_cq_data_entry *entry = &entries[i];
        uint64_t transfer = entry->data >> TRANSFER_SHIFT;

        if (entry->flags & FI_SEND || entry->flags & FI_WRITE || entry->flags & FI_READ) {
            completed++;
            continue;
        }
        require(entry->flags & FI_REMOTE_CQ_DATA && transfer < TRANSFERS, "other data", (long)entry->data);
        if (entry->flags & FI_RECV) {
            struct fi_context *context = entry->op_context;
            int number = (int)(context - notice_contexts);

            require((entry->data & 15) == IS_NOTICE, "another message", (long)entry->data);
            announced[transfer] = *(int *)notices[number];
            post_notice(number);
        } else {
            require((entry->data & 15) == IS_TRANSFER, "another write", (long)entry->data);
            written[transfer]++;
        }
    }
}

static void write_all(int number, const struct segment *there, struct fid_mr *mr)
{
    static struct fi_context contexts[DESCRIPTORS];
    void *desc = fi_mr_desc(mr);
    uint64_t data = (uint64_t)number << TRANSFER_SHIFT;
    int *count = (int *)notices[NOTICES];

    fill(source, sizeof source, (unsigned)(rank + number));
    completed = 0;
    for (int i = 0; i < DESCRIPTORS; i++) {
        int is_last = i % MORE_BATCH == MORE_BATCH - 1 || i == DESCRIPTORS - 1;
        struct iovec iov = { .iov_base = source + i * PIECE_BYTES, .iov_len = PIECE_BYTES };
        struct fi_rma_iov place = { .addr = there->base + (uint64_t)(i * PIECE_BYTES), .len = PIECE_BYTES,
                                    .key = there->key };
        struct fi_msg_rma put = { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = session.peers[1 - rank],
                                  .rma_iov = &place, .rma_iov_count = 1, .context = &contexts[i],
                                  .data = data | IS_TRANSFER };

        POST(progress(), fi_writemsg(session.endpoint, &put, (is_last ? 0 : FI_MORE) | FI_REMOTE_CQ_DATA));
    }
    WAIT_UNTIL(completed == DESCRIPTORS, progress());
    *count = DESCRIPTORS;
    POST(progress(), fi_senddata(session.endpoint, count, sizeof *count, fi_mr_desc(notice_mr), data | IS_NOTICE,
                                 session.peers[1 - rank], &notice_contexts[NOTICES]));
    WAIT_UNTIL(completed == DESCRIPTORS + 1, progress());
}

void run_nixl(struct fi_info *hints)
{
    uint64_t access = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    struct segment all[RANKS_MAX];
    struct fi_context context;
    struct fid_mr *mrs[2];

    open_domain_of(&session, query_rail(query(hints)));
    session.cq = open_cq(session.domain, FI_CQ_FORMAT_DATA, FI_WAIT_NONE, 12288);
    session.av = open_av(session.domain, FI_AV_UNSPEC, 0);
    MUST(fi_endpoint(session.domain, session.info, &session.endpoint, NULL));
    MUST(fi_ep_bind(session.endpoint, &session.cq->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_ep_bind(session.endpoint, &session.av->fid, 0));
    MUST(fi_enable(session.endpoint));
    MUST(fi_mr_reg(session.domain, notices, sizeof notices, FI_SEND | FI_RECV, 0, 0, 0, &notice_mr, NULL));
    for (int i = 0; i < NOTICES; i++)
        post_notice(i);
    mrs[0] = register_memory(source, sizeof source, access, (uintptr_t)source);
    mrs[1] = register_memory(target, sizeof target, access, (uintptr_t)target);
    require(fi_mr_key(mrs[0]) != FI_KEY_NOTAVAIL && fi_mr_key(mrs[1]) != FI_KEY_NOTAVAIL, "keys", 0);
    exchange_segment(session.info, mrs[1], target, all);
    insert_names(session.endpoint, session.av, session.peers);

    for (int i = 0; i < TRANSFERS; i++) {
        write_all(i, &all[1 - rank], mrs[0]);
        WAIT_UNTIL(announced[i] == DESCRIPTORS && written[i] == announced[i], progress());
        require_filled(target, sizeof target, (unsigned)(1 - rank + i));
        barrier(session.cq);
    }
    memset(source, 0, sizeof source);
    completed = 0;
    POST(progress(), fi_read(session.endpoint, source, sizeof source, fi_mr_desc(mrs[0]), session.peers[1 - rank],
                             all[1 - rank].base, all[1 - rank].key, &context));
    WAIT_UNTIL(completed == 1, progress());
    require_filled(source, sizeof source, (unsigned)(rank + TRANSFERS - 1));
    barrier(session.cq);

    CLOSE(mrs[0]);
    CLOSE(mrs[1]);
    MUST(fi_av_remove(session.av, &session.peers[1 - rank], 1, 0));
    CLOSE_OPEN(session.endpoint);
    CLOSE_OPEN(session.cq);
    CLOSE_OPEN(session.av);
    /* The memory of the messages is closed after the endpoint. */
    CLOSE(notice_mr);
    close_session(&session);
}
