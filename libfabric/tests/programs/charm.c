/* Charm++: one tagged receive for every kind of message, long messages that the receiver reads, and an end in which
 * nothing is waited for. */

#include "driver.h"

enum { RECEIVES = 16, EAGER_BYTES = 65536, ENTRIES = 8, MESSAGES = 60, LONG_EVERY = 10, LONG_BYTES = 300000 };
/* The tags: what kind of message it is. Receives take all but the last. */
enum { SHORT = 1, LONG = 2, ACK = 3, ALL_KINDS = 7, NAMES = 8 };
#define ACCESS (FI_REMOTE_READ | FI_READ | FI_RECV | FI_SEND | FI_REMOTE_WRITE | FI_WRITE)

struct short_message {
    unsigned number;
    size_t len_bytes;
    char payload[];
};

/* Tells where a long message is. The answer to it returns the region. */
struct long_header {
    int rank;
    unsigned number;
    uint64_t at, len_bytes, key;
    struct fid_mr *mr;
};

enum operation { RECEIVE, SEND, READ };

struct request {
    struct fi_context context;
    enum operation operation;
    void *memory;
    /* Of a read: the message that is read, and where to. */
    struct long_header header;
    struct fid_mr *mr;
};

static struct session session;
static struct request *receives[RECEIVES];
static uint64_t next_key;
static int arrived, acknowledged, pending_sends;

struct fi_info *charm_hints(void)
{
    struct fi_info *hints = new_hints(FI_TAGGED | FI_RMA | FI_REMOTE_READ);

    hints->mode = FI_CONTEXT;
    hints->domain_attr->mode = ~0ULL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    return hints;
}

static void progress(void);

static struct request *new_request(enum operation operation, void *memory)
{
    struct request *request = calloc(1, sizeof *request);

    request->operation = operation;
    request->memory = memory;
    return request;
}

/* Takes the memory. */
static void send_message(void *memory, size_t len_bytes, int to, uint64_t tag)
{
    struct request *request;

    if (len_bytes <= session.info->tx_attr->inject_size) {
        POST(progress(), fi_tinject(session.endpoint, memory, len_bytes, (fi_addr_t)to, tag));
        free(memory);
        return;
    }
    request = new_request(SEND, memory);
    pending_sends++;
    POST(progress(), fi_tsend(session.endpoint, memory, len_bytes, NULL, (fi_addr_t)to, tag, &request->context));
}

static struct fid_mr *register_memory(void *memory, size_t len_bytes, uint64_t key)
{
    struct fid_mr *mr;

    MUST(fi_mr_reg(session.domain, memory, len_bytes, ACCESS, 0, key, 0, &mr, NULL));
    return mr;
}

static void send_long(unsigned number, int to)
{
    struct long_header *header = malloc(sizeof *header);
    char *memory = malloc(LONG_BYTES);

    fill(memory, LONG_BYTES, number);
    *header = (struct long_header){ .rank = rank, .number = number, .at = (uintptr_t)memory, .len_bytes = LONG_BYTES,
                                    .mr = register_memory(memory, LONG_BYTES, next_key++) };
    header->key = fi_mr_key(header->mr);
    send_message(header, sizeof *header, to, LONG);
}

/* Reads a long message. A provider that chooses keys gets the memory registered. */
static void read_long(const struct long_header *header)
{
    int is_basic = session.info->domain_attr->mr_mode == FI_MR_BASIC;
    struct request *request = new_request(READ, malloc(header->len_bytes));

    request->header = *header;
    if (is_basic)
        request->mr = register_memory(request->memory, header->len_bytes, 0);
    POST(progress(), fi_read(session.endpoint, request->memory, header->len_bytes,
                             is_basic ? fi_mr_desc(request->mr) : NULL, (fi_addr_t)header->rank,
                             is_basic ? header->at : 0, header->key, &request->context));
}

static void finish_read(struct request *request)
{
    struct long_header *answer = malloc(sizeof *answer);

    require_filled(request->memory, request->header.len_bytes, request->header.number);
    arrived++;
    if (request->mr)
        CLOSE(request->mr);
    *answer = request->header;
    send_message(answer, sizeof *answer, answer->rank, ACK);
}

static void handle_message(const struct fi_cq_tagged_entry *entry, const void *bytes)
{
    const struct short_message *message = bytes;
    struct long_header header;

    if (entry->tag == SHORT) {
        require(entry->len == sizeof *message + message->len_bytes, "the length", (long)entry->len);
        require_filled(message->payload, message->len_bytes, message->number);
        arrived++;
        return;
    }
    require(entry->len == sizeof header, "the length of a header", (long)entry->len);
    memcpy(&header, bytes, sizeof header);
    if (entry->tag == LONG) {
        read_long(&header);
        return;
    }
    require(entry->tag == ACK, "another kind", (long)entry->tag);
    CLOSE(header.mr);
    free((void *)(uintptr_t)header.at);
    acknowledged++;
}

static void post_receive(struct request *request)
{
    POST(progress(), fi_trecv(session.endpoint, request->memory, EAGER_BYTES, NULL, FI_ADDR_UNSPEC, 0, ALL_KINDS,
                              &request->context));
}

static void progress(void)
{
    struct fi_cq_tagged_entry entries[ENTRIES];
    ssize_t count = read_entries(session.cq, entries, ENTRIES);

    for (ssize_t i = 0; i < count; i++) {
        struct request *request = entries[i].op_context;

        if (request->operation == RECEIVE) {
            handle_message(&entries[i], request->memory);
            post_receive(request);
            continue;
        }
        if (request->operation == READ)
            finish_read(request);
        else
            pending_sends--;
        free(request->memory);
        free(request);
    }
}

/* Rank 0 knows all addresses, and sends them to the others. They are inserted in the order of the ranks, so that ranks
 * are addresses. */
static void exchange_names(void)
{
    char mine[NAME_MAX_BYTES] = { 0 }, gathered[RANKS_MAX * NAME_MAX_BYTES], names[RANKS_MAX * NAME_MAX_BYTES] = { 0 };
    size_t len_bytes = sizeof mine;
    struct fi_context contexts[RANKS_MAX];

    MUST(fi_getname(&session.endpoint->fid, mine, &len_bytes));
    if (rank != 0)
        MUST(fi_trecv(session.endpoint, names, sizeof names, NULL, FI_ADDR_UNSPEC, NAMES, 0, &contexts[0]));
    exchange(mine, sizeof mine, gathered);
    if (rank == 0) {
        for (int i = 0; i < ranks; i++)
            memcpy(names + (size_t)i * len_bytes, gathered + i * NAME_MAX_BYTES, len_bytes);
        require(fi_av_insert(session.av, names, (size_t)ranks, NULL, 0, NULL) == ranks, "fi_av_insert", 0);
        for (int i = 1; i < ranks; i++)
            MUST(fi_tsend(session.endpoint, names, sizeof names, NULL, (fi_addr_t)i, NAMES, &contexts[i]));
    }
    await_completions(session.cq, rank == 0 ? ranks - 1 : 1);
    if (rank != 0)
        require(fi_av_insert(session.av, names, (size_t)ranks, NULL, 0, NULL) == ranks, "fi_av_insert", 0);
}

void run_charm(struct fi_info *hints)
{
    int long_count = 0;

    open_domain(&session, hints);
    require(session.info->domain_attr->mr_mode == FI_MR_BASIC || session.info->domain_attr->mr_mode == FI_MR_SCALABLE,
            "a mode of memory of old", session.info->domain_attr->mr_mode);
    MUST(fi_endpoint(session.domain, session.info, &session.endpoint, NULL));
    session.cq = open_cq(session.domain, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, 0);
    session.av = open_av(session.domain, FI_AV_TABLE, 0);
    MUST(fi_ep_bind(session.endpoint, &session.cq->fid, FI_RECV | FI_TRANSMIT));
    MUST(fi_ep_bind(session.endpoint, &session.av->fid, 0));
    MUST(fi_enable(session.endpoint));
    exchange_names();
    for (int i = 0; i < RECEIVES; i++) {
        receives[i] = new_request(RECEIVE, malloc(EAGER_BYTES));
        post_receive(receives[i]);
    }

    for (unsigned number = 0; number < MESSAGES; number++)
        for (int to = 0; to < ranks; to++) {
            size_t len_bytes = number % 3 ? number * 911 % (EAGER_BYTES - sizeof(struct short_message)) : number;
            struct short_message *message;

            if (to == rank)
                continue;
            if (number % LONG_EVERY == 0) {
                send_long(number, to);
                long_count++;
                continue;
            }
            message = malloc(sizeof *message + len_bytes);
            message->number = number;
            message->len_bytes = len_bytes;
            fill(message->payload, len_bytes, number);
            send_message(message, sizeof *message + len_bytes, to, SHORT);
        }
    WAIT_UNTIL(arrived == MESSAGES * (ranks - 1) && acknowledged == long_count && !pending_sends, progress());
    barrier(session.cq);

    for (int i = 0; i < RECEIVES; i++) {
        MUST(fi_cancel(&session.endpoint->fid, &receives[i]->context));
        free(receives[i]->memory);
        free(receives[i]);
    }
    /* What others use is closed before them. Charm++ does not look at the results. */
    fi_close(&session.av->fid);
    fi_close(&session.cq->fid);
    MUST(fi_close(&session.endpoint->fid));
    fi_close(&session.domain->fid);
    fi_close(&session.fabric->fid);
}
