/* Libraries that move the tensors of accelerators between hosts, here in host memory: NCCL's plugin for libfabric, and
 * NIXL. */

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

/* NCCL: connections of its own over messages, to an endpoint beside that for the data; both share a queue. */

enum { KEY_BYTES = 2, MANAGER_BUFFERS = 4, ROUNDS = 12, REQUESTS = 8, CHUNK_BYTES = 1 << 17 };
/* The number of FI_OPT_SHARED_MEMORY_PERMITTED, which older headers lack. */
enum { SHARED_MEMORY_PERMITTED = 11 };

/* A request for a connection, or the answer to one. */
struct connect_message {
    int is_answer;
    uint64_t tag;
    size_t len_bytes;
    char name[NAME_MAX_BYTES];
};

/* A way to one peer: the tag of what goes there, and its address. */
struct connection {
    uint64_t tag;
    fi_addr_t peer;
    int is_open;
};

static struct fid_ep *manager;
static struct fid_av *manager_av;
static struct connect_message arrived[MANAGER_BUFFERS], asked, answered;
static struct fi_context2 arrivals[MANAGER_BUFFERS], asking, answering;
static struct fid_mr *manager_mrs[3];
static char out[REQUESTS][CHUNK_BYTES], in[REQUESTS][CHUNK_BYTES];
static uint64_t next_key;

struct fi_info *nccl_hints(void)
{
    struct fi_info *hints = new_hints(FI_MSG | FI_RMA | FI_HMEM | FI_LOCAL_COMM | FI_REMOTE_COMM);

    /* The protocol that writes is tried first. Without memory of accelerators it finds no provider. */
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_HMEM | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
                                  FI_MR_ENDPOINT;
    hints->domain_attr->mr_key_size = KEY_BYTES;
    hints->domain_attr->threading = FI_THREAD_COMPLETION;
    hints->domain_attr->cq_data_size = 4;
    require_unmet(FI_VERSION(1, 18), hints);

    /* So does that of messages, then it does without. */
    hints->domain_attr->cq_data_size = 0;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->caps = FI_LOCAL_COMM | FI_REMOTE_COMM | FI_TAGGED | FI_MSG | FI_HMEM | FI_RMA | FI_READ;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    require_unmet(FI_VERSION(1, 18), hints);
    require_unmet(FI_VERSION(1, 6), hints);
    hints->caps = FI_LOCAL_COMM | FI_REMOTE_COMM | FI_TAGGED | FI_MSG;
    hints->domain_attr->mr_mode &= ~FI_MR_HMEM;
    return hints;
}

static struct fid_ep *open_nccl_endpoint(struct fid_av *av)
{
    _Bool permitted = 0;
    struct fid_ep *endpoint;
    int result;

    MUST(fi_endpoint(session.domain, session.info, &endpoint, NULL));
    MUST(fi_ep_bind(endpoint, &session.cq->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_ep_bind(endpoint, &av->fid, 0));
    result = fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, SHARED_MEMORY_PERMITTED, &permitted, sizeof permitted);
    require(!result || result == -FI_EOPNOTSUPP || result == -FI_ENOPROTOOPT, "an option", result);
    MUST(fi_enable(endpoint));
    return endpoint;
}

static struct fid_mr *register_for_messages(void *memory, size_t len_bytes)
{
    uint64_t key = session.info->domain_attr->mr_mode & FI_MR_PROV_KEY ? 0 : next_key++;

    return register_memory(memory, len_bytes, FI_SEND | FI_RECV, key);
}

static void post_arrival(int i)
{
    POST((void)0, fi_recv(manager, &arrived[i], sizeof *arrived, fi_mr_desc(manager_mrs[0]), FI_ADDR_UNSPEC,
                          &arrivals[i]));
}

static void send_name(struct connect_message *message, struct fid_mr *mr, int is_answer, uint64_t tag, fi_addr_t to,
                      struct fi_context2 *context)
{
    message->is_answer = is_answer;
    message->tag = tag;
    message->len_bytes = sizeof message->name;
    MUST(fi_getname(&session.endpoint->fid, message->name, &message->len_bytes));
    POST(make_progress(session.cq), fi_send(manager, message, sizeof *message, fi_mr_desc(mr), to, context));
}

/* Connects to the listener of the other rank, and accepts its connection. */
static void connect_both(fi_addr_t listener, struct connection *to, struct connection *from)
{
    int pending = 2;

    send_name(&asked, manager_mrs[1], 0, 0, listener, &asking);
    while (!to->is_open || !from->is_open || pending > 0) {
        struct fi_context2 *context = next_completion(session.cq).op_context;
        struct connect_message *message;
        struct connection *connection;

        if (context == &asking || context == &answering) {
            pending--;
            continue;
        }
        message = &arrived[context - arrivals];
        connection = message->is_answer ? to : from;
        connection->is_open = 1;
        connection->tag = message->is_answer ? message->tag : 1;
        require(fi_av_insert(session.av, message->name, 1, &connection->peer, 0, NULL) == 1, "fi_av_insert", 0);
        if (!message->is_answer)
            send_name(&answered, manager_mrs[2], 1, from->tag, listener, &answering);
        post_arrival((int)(context - arrivals));
    }
}

static size_t chunk_bytes(int round, int i)
{
    return i ? (size_t)(round * 7919 + i * 104729) % CHUNK_BYTES : 0;
}

void run_nccl(struct fi_info *hints)
{
    static struct fi_context2 sends[REQUESTS], receives[REQUESTS];
    struct connection to = { 0 }, from = { 0 };
    struct fi_info *info = query(hints);
    fi_addr_t listeners[RANKS_MAX];
    struct fid_mr *mrs[2];

    /* For an older tcp, the plugin asks more of its endpoints than of the provider. */
    if (!strcmp(info->fabric_attr->prov_name, "tcp") && FI_VERSION_LT(fi_version(), FI_VERSION(2, 2)))
        for (struct fi_info *each = info; each; each = each->next)
            each->caps |= FI_RMA;
    require(info->domain_attr->mr_mode & FI_MR_PROV_KEY || info->domain_attr->mr_key_size >= KEY_BYTES, "keys", 0);
    open_domain_of(&session, info);
    session.cq = open_cq(session.domain, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, 12288);
    session.av = open_av(session.domain, FI_AV_UNSPEC, 0);
    session.endpoint = open_nccl_endpoint(session.av);
    manager_av = open_av(session.domain, FI_AV_UNSPEC, 0);
    manager = open_nccl_endpoint(manager_av);
    manager_mrs[0] = register_for_messages(arrived, sizeof arrived);
    manager_mrs[1] = register_for_messages(&asked, sizeof asked);
    manager_mrs[2] = register_for_messages(&answered, sizeof answered);
    for (int i = 0; i < MANAGER_BUFFERS; i++)
        post_arrival(i);
    insert_names(manager, manager_av, listeners);
    connect_both(listeners[1 - rank], &to, &from);

    mrs[0] = register_for_messages(out, sizeof out);
    mrs[1] = register_for_messages(in, sizeof in);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < REQUESTS; i++)
            POST(make_progress(session.cq), fi_trecv(session.endpoint, in[i], CHUNK_BYTES, fi_mr_desc(mrs[1]),
                                                     FI_ADDR_UNSPEC, from.tag, 0, &receives[i]));
        for (int i = 0; i < REQUESTS; i++) {
            fill(out[i], chunk_bytes(round, i), (unsigned)(round + i));
            POST(make_progress(session.cq), fi_tsend(session.endpoint, out[i], chunk_bytes(round, i),
                                                     fi_mr_desc(mrs[0]), to.peer, to.tag, &sends[i]));
        }
        for (int i = 0; i < 2 * REQUESTS; i++) {
            struct fi_cq_tagged_entry entry = next_completion(session.cq);
            int number = (int)((struct fi_context2 *)entry.op_context - receives);

            if (!(entry.flags & FI_RECV))
                continue;
            require(entry.len == chunk_bytes(round, number), "the length", (long)entry.len);
            require_filled(in[number], entry.len, (unsigned)(round + number));
        }
    }
    barrier(session.cq);

    CLOSE(mrs[0]);
    CLOSE(mrs[1]);
    /* The manager's endpoint is closed before the memory that it receives into. */
    CLOSE(manager);
    for (int i = 0; i < 3; i++)
        CLOSE(manager_mrs[i]);
    CLOSE(manager_av);
    CLOSE(session.endpoint);
    CLOSE(session.av);
    session.endpoint = NULL;
    session.av = NULL;
    close_session(&session);
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
    struct segment mine, all[RANKS_MAX];
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
    mine = (struct segment){ .key = fi_mr_key(mrs[1]), .base = base_of(session.info, target) };
    exchange(&mine, sizeof mine, all);
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
    CLOSE(session.endpoint);
    CLOSE(session.cq);
    CLOSE(session.av);
    session.endpoint = NULL;
    session.cq = NULL;
    session.av = NULL;
    /* The memory of the messages is closed after the endpoint. */
    CLOSE(notice_mr);
    close_session(&session);
}
