/* Calls fi_getinfo with the hints of programs that accept only providers whose names they know. For each
 * program, opens two endpoints with the first info that the program would accept, and exchanges a message
 * and a write between them.
 *
 * usage: known_hints tcp|sockets
 *
 * The argument is the name under which homespun is offered. Prints a row of a table for each program. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

enum { WAIT_SECONDS = 60, NAME_MAX_BYTES = 64, LEN_BYTES = 4096, TAG = 9, KEY = 100, OUR_VERSION = 1000 };

/* How a program chooses its interface. */
enum interface {
    ANY,         /* it takes the first info */
    SOURCE_NODE, /* it passes a node with FI_SOURCE */
    DOMAIN_NAME, /* it passes the name of the domain that an earlier answer had first */
};

struct row {
    const char *as;
    const char *program;
    const char *prov_name;
    uint32_t version;
    int has_type;
    enum interface interface;
    uint64_t caps;
    uint64_t mode;
    uint64_t tx_flags;
    uint64_t mr_mode;
    uint32_t protocol;
    uint32_t addr_format;
    enum fi_threading threading;
    enum fi_progress progress;
    enum fi_resource_mgmt resource_mgmt;
    size_t tx_size;
    size_t rx_size;
    enum fi_cq_format cq_format;
    enum fi_wait_obj wait_obj;
    size_t cq_size;
};

#define RMA_CAPS (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define ALL_MR_MODES (~(uint64_t)3 & INT32_MAX)

#define NIXL                                                                                                 \
    .version = FI_VERSION(1, 18), .has_type = 1,                                                             \
    .caps = FI_MSG | FI_RMA | FI_LOCAL_COMM | FI_REMOTE_COMM, .mode = FI_CONTEXT,                            \
    .cq_format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE, .cq_size = 12288

#define DMA                                                                                                  \
    .version = FI_VERSION(1, 17), .has_type = 1, .caps = FI_MSG | FI_RMA | RMA_CAPS,                         \
    .mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR,                             \
    .cq_format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE

static const struct row ROWS[] = {
    { .as = "tcp", .program = "NIXL discovery", NIXL, .mr_mode = ALL_MR_MODES },
    { .as = "tcp", .program = "NIXL rail", NIXL, .mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED,
      .threading = FI_THREAD_COMPLETION, .interface = DOMAIN_NAME },
    { .as = "sockets", .program = "NIXL rail", NIXL, .mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED,
      .threading = FI_THREAD_COMPLETION, .interface = DOMAIN_NAME },
    { .as = "tcp", .program = "dma-libfabric", .prov_name = "tcp", DMA },
    { .as = "tcp", .program = "dma-libfabric --bind", .prov_name = "tcp", DMA, .interface = SOURCE_NODE },
};

static const struct row *row;

static void require(int is_true, const char *what, long result)
{
    if (is_true)
        return;
    fprintf(stderr, "%s: %s: %s (%ld)\n", row ? row->program : "known_hints", what, fi_strerror((int)-result),
            result);
    exit(1);
}

#define MUST(call)                              \
    do {                                        \
        long result_ = (long)(call);            \
        require(result_ == 0, #call, result_);  \
    } while (0)

/* One of the two endpoints, with the memory that the other one writes to. */
struct side {
    struct fid_ep *endpoint;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_mr *mr;
    unsigned char memory[LEN_BYTES];
    fi_addr_t other;
};

static uint32_t min_version(uint32_t one, uint32_t other)
{
    return one < other ? one : other;
}

/* Returns the infos that fi_getinfo returns for the hints of the row. */
static struct fi_info *call_getinfo(const char *domain_name)
{
    struct fi_info *hints = fi_allocinfo(), *list;

    hints->caps = row->caps;
    hints->mode = row->mode;
    hints->addr_format = row->addr_format;
    hints->tx_attr->op_flags = row->tx_flags;
    hints->tx_attr->size = row->tx_size;
    hints->rx_attr->size = row->rx_size;
    hints->ep_attr->type = row->has_type ? FI_EP_RDM : FI_EP_UNSPEC;
    hints->ep_attr->protocol = row->protocol;
    hints->domain_attr->mr_mode = (int)row->mr_mode;
    hints->domain_attr->threading = row->threading;
    hints->domain_attr->control_progress = row->progress;
    hints->domain_attr->data_progress = row->progress;
    hints->domain_attr->resource_mgmt = row->resource_mgmt;
    hints->domain_attr->name = domain_name ? strdup(domain_name) : NULL;
    hints->fabric_attr->prov_name = row->prov_name ? strdup(row->prov_name) : NULL;
    const char *node = row->interface == SOURCE_NODE ? "127.0.0.1" : NULL;
    MUST(fi_getinfo(min_version(row->version, fi_version()), node, NULL, node ? FI_SOURCE : 0, hints, &list));
    fi_freeinfo(hints);
    return list;
}

/* Returns the first info whose names the program of the row would accept. */
static struct fi_info *choose(void)
{
    struct fi_info *first = NULL;

    if (row->interface == DOMAIN_NAME)
        first = call_getinfo(NULL);
    struct fi_info *list = call_getinfo(first ? first->domain_attr->name : NULL);
    if (first) {
        require(!strcmp(list->domain_attr->name, first->domain_attr->name), "the name of the domain", 0);
        fi_freeinfo(first);
    }
    if (row->interface == SOURCE_NODE)
        require(!strcmp(list->domain_attr->name, "lo"), "the name of the loopback interface", 0);
    for (struct fi_info *info = list; info; info = info->next) {
        const char *expected = row->prov_name ? row->prov_name : row->as;
        int is_layered = strchr(expected, ';') != NULL;

        require(!strcmp(info->fabric_attr->prov_name, expected), info->fabric_attr->prov_name, 0);
        require(is_layered || info->fabric_attr->prov_version == FI_VERSION(OUR_VERSION, 0), "ours", 0);
        require(info->ep_attr->type == FI_EP_RDM, "an unconnected endpoint", 0);
        require(!row->addr_format || info->addr_format == row->addr_format, "the address format", 0);
        require(!row->threading || info->domain_attr->threading == row->threading, "the threading", 0);
        require(strcmp(info->domain_attr->name, row->as) != 0, "the name of an interface", 0);
        require((info->domain_attr->mr_mode & ~row->mr_mode) == 0, "modes of memory", 0);
    }
    return list;
}

static void open_side(struct side *side, struct fid_domain *domain, struct fi_info *info, uint64_t key)
{
    struct fi_cq_attr cq = { .format = row->cq_format, .wait_obj = row->wait_obj, .size = row->cq_size };

    if (cq.format == FI_CQ_FORMAT_UNSPEC)
        cq.format = FI_CQ_FORMAT_TAGGED;
    MUST(fi_av_open(domain, &(struct fi_av_attr){ 0 }, &side->av, NULL));
    MUST(fi_cq_open(domain, &cq, &side->cq, NULL));
    MUST(fi_endpoint(domain, info, &side->endpoint, NULL));
    MUST(fi_ep_bind(side->endpoint, &side->av->fid, 0));
    MUST(fi_ep_bind(side->endpoint, &side->cq->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_enable(side->endpoint));
    uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    MUST(fi_mr_reg(domain, side->memory, LEN_BYTES, access, 0, key, 0, &side->mr, NULL));
}

static void insert_name(struct side *to, struct side *of)
{
    unsigned char name[NAME_MAX_BYTES];
    size_t len_bytes = sizeof name;

    MUST(fi_getname(&of->endpoint->fid, name, &len_bytes));
    require(fi_av_insert(to->av, name, 1, &to->other, 0, NULL) == 1, "fi_av_insert", 0);
}

/* Reads both queues until `count` operations have completed. */
static void await_completions(struct side *sides, int count)
{
    struct fi_cq_tagged_entry entry;

    while (count > 0)
        for (int i = 0; i < 2; i++) {
            ssize_t result = fi_cq_read(sides[i].cq, &entry, 1);
            if (result == -FI_EAVAIL) {
                struct fi_cq_err_entry error = { 0 };
                fi_cq_readerr(sides[i].cq, &error, 0);
                require(0, "an operation", -error.err);
            }
            require(result == 1 || result == -FI_EAGAIN, "fi_cq_read", result);
            count -= result == 1;
        }
}

/* Repeats a post while it is refused with -FI_EAGAIN. */
#define POST(sides, call)                                       \
    do {                                                        \
        ssize_t result_;                                        \
        while ((result_ = (call)) == -FI_EAGAIN)                \
            fi_cq_read((sides)[0].cq, NULL, 0), fi_cq_read((sides)[1].cq, NULL, 0); \
        require(result_ == 0, #call, result_);                  \
    } while (0)

static void exchange(struct side *sides, struct fi_info *info)
{
    struct side *from = &sides[0], *to = &sides[1];
    void *from_desc = fi_mr_desc(from->mr), *to_desc = fi_mr_desc(to->mr);
    struct fi_context2 received, sent, accessed;
    fi_addr_t any = FI_ADDR_UNSPEC;

    memset(from->memory, 'm', LEN_BYTES);
    if (info->caps & FI_TAGGED) {
        POST(sides, fi_trecv(to->endpoint, to->memory, LEN_BYTES, to_desc, any, TAG, 0, &received));
        POST(sides, fi_tsend(from->endpoint, from->memory, LEN_BYTES, from_desc, from->other, TAG, &sent));
    } else {
        POST(sides, fi_recv(to->endpoint, to->memory, LEN_BYTES, to_desc, any, &received));
        POST(sides, fi_send(from->endpoint, from->memory, LEN_BYTES, from_desc, from->other, &sent));
    }
    await_completions(sides, 2);
    require(to->memory[0] == 'm' && to->memory[LEN_BYTES - 1] == 'm', "the bytes of the message", 0);

    memset(from->memory, 'w', LEN_BYTES);
    int is_virtual = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    uint64_t at = is_virtual ? (uintptr_t)to->memory : 0;
    uint64_t key = fi_mr_key(to->mr);
    POST(sides, fi_write(from->endpoint, from->memory, LEN_BYTES, from_desc, from->other, at, key, &accessed));
    await_completions(sides, 1);
    /* The write has completed only at its initiator. A read shows whether the bytes are in the target's memory. */
    memset(from->memory, 0, LEN_BYTES);
    POST(sides, fi_read(from->endpoint, from->memory, LEN_BYTES, from_desc, from->other, at, key, &accessed));
    await_completions(sides, 1);
    require(from->memory[0] == 'w' && from->memory[LEN_BYTES - 1] == 'w', "the bytes of the write", 0);
}

/* Opens the domain of an info. First checks that a domain with the name of a missing interface does not open. */
static struct fid_domain *open_domain(struct fid_fabric *fabric, struct fi_info *info)
{
    char *name = info->domain_attr->name;
    struct fid_domain *domain;

    info->domain_attr->name = "no-such-interface";
    require(fi_domain(fabric, info, &domain, NULL) < 0, "a domain that does not exist", 0);
    info->domain_attr->name = name;
    MUST(fi_domain(fabric, info, &domain, NULL));
    return domain;
}

/* Requires that fi_getinfo now returns the open fabric and the open domain. */
static void require_open_objects(struct fid_fabric *fabric, struct fid_domain *domain)
{
    struct fi_info *again = call_getinfo(NULL);

    require(again->fabric_attr->fabric == fabric, "the open fabric", 0);
    require(again->domain_attr->domain == domain, "the open domain", 0);
    fi_freeinfo(again);
}

static void run(void)
{
    struct fi_info *info = choose();
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    static struct side sides[2];

    memset(sides, 0, sizeof sides);
    MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
    domain = open_domain(fabric, info);
    if (row->interface == ANY && !strchr(info->fabric_attr->prov_name, ';'))
        require_open_objects(fabric, domain);
    for (int i = 0; i < 2; i++)
        open_side(&sides[i], domain, info, KEY + (uint64_t)i);
    insert_name(&sides[0], &sides[1]);
    insert_name(&sides[1], &sides[0]);
    exchange(sides, info);
    printf("%s | %s | %s | %s | %s\n", row->program, row->as, info->fabric_attr->prov_name,
           info->domain_attr->name, info->fabric_attr->name);
    for (int i = 0; i < 2; i++) {
        MUST(fi_close(&sides[i].endpoint->fid));
        MUST(fi_close(&sides[i].mr->fid));
        MUST(fi_close(&sides[i].cq->fid));
        MUST(fi_close(&sides[i].av->fid));
    }
    MUST(fi_close(&domain->fid));
    MUST(fi_close(&fabric->fid));
    fi_freeinfo(info);
}

int main(int argc, char **argv)
{
    require(argc == 2, "usage: known_hints tcp|sockets", 0);
    /* If an exchange does not end, the signal ends the program with a failure. */
    alarm(WAIT_SECONDS);
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        row = &ROWS[i];
        if (!strcmp(row->as, argv[1]))
            run();
    }
    return 0;
}
