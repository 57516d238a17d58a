/* The Rust crate dma-libfabric, whose server reads and writes the memory of clients that know no peer. Rank 0 is the
 * server, the other a client. */

#include "driver.h"

static struct session session;

enum { SLICE_BYTES = 4096, SLICES = 64, MEMORY_BYTES = SLICES * SLICE_BYTES, PASSES = 8, REAPED = 16 };

/* What a client tells the server beside libfabric. */
struct advertisement {
    struct segment memory;
    size_t len_bytes;
    char name[NAME_MAX_BYTES];
};

static char memory[MEMORY_BYTES];
static struct fi_context2 in_flight[SLICES];
static int done;

struct fi_info *dma_libfabric_hints(void)
{
    struct fi_info *hints = new_hints(FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE);

    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    return hints;
}

/* Opens a copy of the first info, and returns the address of the endpoint. */
static void open_server_or_client(struct fi_info *list, struct advertisement *mine)
{
    struct fi_info *chosen = fi_dupinfo(list);

    fi_freeinfo(list);
    open_domain_of(&session, chosen);
    session.av = open_av(session.domain, FI_AV_MAP, 0);
    session.cq = open_cq(session.domain, FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE, 0);
    MUST(fi_endpoint(session.domain, session.info, &session.endpoint, NULL));
    MUST(fi_ep_bind(session.endpoint, &session.av->fid, 0));
    MUST(fi_ep_bind(session.endpoint, &session.cq->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_enable(session.endpoint));
    require(fi_getname(&session.endpoint->fid, NULL, &mine->len_bytes) == -FI_ETOOSMALL, "the length", 0);
    require(mine->len_bytes <= sizeof mine->name, "a long name", 0);
    MUST(fi_getname(&session.endpoint->fid, mine->name, &mine->len_bytes));
}

static void reap(void)
{
    struct fi_cq_entry entries[REAPED];
    ssize_t count = read_entries(session.cq, entries, REAPED);

    for (ssize_t i = 0; i < count; i++) {
        struct fi_context2 *context = entries[i].op_context;

        require(context >= in_flight && context < in_flight + SLICES, "another operation", 0);
        done++;
    }
}

/* Moves all slices, as many at once as the queue of the endpoint takes. */
static void move_slices(const struct advertisement *to, fi_addr_t peer, void *desc, int writes)
{
    size_t at_once = session.info->tx_attr->size;

    done = 0;
    for (int i = 0; i < SLICES; i++) {
        char *slice = memory + i * SLICE_BYTES;
        uint64_t at = to->memory.base + (uint64_t)(i * SLICE_BYTES);
        struct iovec iov = { .iov_base = slice, .iov_len = SLICE_BYTES };
        struct fi_rma_iov place = { .addr = at, .len = SLICE_BYTES, .key = to->memory.key };
        struct fi_msg_rma put = { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = peer, .rma_iov = &place,
                                  .rma_iov_count = 1, .context = &in_flight[i] };

        WAIT_UNTIL((size_t)(i - done) < at_once, reap());
        if (writes)
            POST(reap(), fi_writemsg(session.endpoint, &put, FI_DELIVERY_COMPLETE));
        else
            POST(reap(), fi_read(session.endpoint, slice, SLICE_BYTES, desc, peer, at, to->memory.key,
                                 &in_flight[i]));
    }
    WAIT_UNTIL(done == SLICES, reap());
}

static void serve(const struct advertisement *client)
{
    struct fid_mr *mr = NULL;
    fi_addr_t peer;

    require(fi_av_insert(session.av, client->name, 1, &peer, 0, NULL) == 1, "fi_av_insert", 0);
    if (session.info->domain_attr->mr_mode & FI_MR_LOCAL)
        MUST(fi_mr_reg(session.domain, memory, MEMORY_BYTES, FI_READ | FI_WRITE, 0, 1, 0, &mr, NULL));
    for (unsigned pass = 0; pass < PASSES; pass++) {
        fill(memory, MEMORY_BYTES, pass);
        move_slices(client, peer, mr ? fi_mr_desc(mr) : NULL, 1);
        barrier(NULL);
        memset(memory, 0, MEMORY_BYTES);
        barrier(NULL);
        move_slices(client, peer, mr ? fi_mr_desc(mr) : NULL, 0);
        require_filled(memory, MEMORY_BYTES, pass + 100);
        barrier(NULL);
    }
    if (mr)
        CLOSE(mr);
    MUST(fi_av_remove(session.av, &peer, 1, 0));
}

/* The client reads its queue only for progress: it has no operations, and inserts no peer. */
static void be_served(void)
{
    struct fi_cq_entry entry;

    for (unsigned pass = 0; pass < PASSES; pass++) {
        barrier(session.cq);
        require_filled(memory, MEMORY_BYTES, pass);
        fill(memory, MEMORY_BYTES, pass + 100);
        barrier(session.cq);
        barrier(session.cq);
    }
    require(fi_cq_read(session.cq, &entry, 1) == -FI_EAGAIN, "an entry at the client", 0);
}

static void run_dma(struct fi_info *list)
{
    struct advertisement mine = { 0 }, all[RANKS_MAX];
    struct fid_mr *mr = NULL;

    open_server_or_client(list, &mine);
    if (rank == 1) {
        MUST(fi_mr_reg(session.domain, memory, MEMORY_BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE, 0,
                       0, 0, &mr, NULL));
        mine.memory = (struct segment){ .key = fi_mr_key(mr), .base = base_of(session.info, memory) };
    }
    exchange(&mine, sizeof mine, all);
    if (rank == 0)
        serve(&all[1]);
    else
        be_served();
    if (mr)
        CLOSE(mr);
    close_session(&session);
}

void run_dma_libfabric(struct fi_info *hints)
{
    run_dma(query(hints));
}

/* With --bind, the endpoint is at an address of this host. */
void run_dma_libfabric_bound(struct fi_info *hints)
{
    struct fi_info *list = query_source("127.0.0.1", NULL, hints);

    require(!strcmp(list->domain_attr->name, "lo"), "the name of the loopback interface", 0);
    run_dma(list);
}
