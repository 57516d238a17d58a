/* How programs ask for an interface. What they call then is the same here: they send a message each way, and read and
 * write memory of each other, as far as their hints ask for that. */

#include "driver.h"

#include <netinet/in.h>

enum { LEN_BYTES = 1 << 17, TAG = 7, KEY_BYTES = 2 };
#define ACCESS (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

/* Repeats a call while it is refused with -FI_EAGAIN. */
#define POST(call)                                     \
    do {                                               \
        long result_;                                  \
        step = #call;                                  \
        while ((result_ = (long)(call)) == -FI_EAGAIN) \
            make_progress(session.cq);                 \
        require(result_ == 0, #call, result_);         \
    } while (0)

/* The memory of a rank that the other accesses, as it must address it. */
struct segment {
    uint64_t key, base;
};

static struct session session;
static char out[LEN_BYTES], in[LEN_BYTES], memory[LEN_BYTES], expected[LEN_BYTES];
static struct fid_mr *out_mr, *in_mr, *memory_mr;
static struct fi_context2 contexts[2];

/* Sandia's OpenSHMEM. */
static struct fi_info *ask_as_openshmem(enum fi_progress progress)
{
    struct fi_info *hints = new_hints(FI_RMA | FI_ATOMIC | FI_RMA_EVENT);

    hints->domain_attr->data_progress = progress;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    if (progress == FI_PROGRESS_AUTO)
        hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->mr_key_size = 1;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->ep_attr->tx_ctx_cnt = 0;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    hints->tx_attr->inject_size = sizeof(long double);
    return hints;
}

static struct fi_info *openshmem_hints(void)
{
    return ask_as_openshmem(FI_PROGRESS_AUTO);
}

static struct fi_info *openshmem_manual_hints(void)
{
    return ask_as_openshmem(FI_PROGRESS_MANUAL);
}

/* GASNet-EX. */
static struct fi_info *gasnet_hints(void)
{
    struct fi_info *hints = new_hints(FI_RMA | FI_MSG | FI_MULTI_RECV);

    hints->mode = FI_CONTEXT;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
    return hints;
}

static struct fi_info *lci_hints(void)
{
    struct fi_info *hints = new_hints(FI_RMA | FI_MSG);

    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->tx_attr->inject_size = 64;
    return hints;
}

/* Lamellar's rofi. */
static struct fi_info *rofi_hints(void)
{
    struct fi_info *hints = new_hints(FI_RMA | FI_ATOMIC | FI_MSG);

    hints->mode = FI_CONTEXT;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->mr_mode = FI_MR_BASIC;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    return hints;
}

/* Charm++, which asks for the first version, and for no mode of memory. */
static struct fi_info *charm_hints(void)
{
    struct fi_info *hints = new_hints(FI_TAGGED | FI_RMA | FI_REMOTE_READ);

    hints->mode = FI_CONTEXT;
    hints->domain_attr->mode = ~0ULL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    return hints;
}

/* The Rust crate libfabric-efa-rs. */
static struct fi_info *libfabric_efa_rs_hints(void)
{
    struct fi_info *hints = new_hints(FI_MSG);

    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    return hints;
}

/* NCCL's plugin for libfabric. */
static struct fi_info *nccl_hints(void)
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

/* Open MPI's mtl. */
static struct fi_info *ompi_mtl_hints(void)
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

/* Open MPI's btl. */
static struct fi_info *ompi_btl_hints(void)
{
    struct fi_info *hints = new_hints(FI_RMA | FI_ATOMIC);

    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->tx_attr->iov_limit = hints->rx_attr->iov_limit = 1;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE | FI_COMPLETION;
    hints->rx_attr->op_flags = FI_COMPLETION;
    return hints;
}

static struct fi_info *ask_as_mercury(uint32_t protocol, enum fi_progress progress, size_t queue_size)
{
    struct fi_info *hints = new_hints(FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_MULTI_RECV);

    hints->mode = FI_ASYNC_IOV | FI_CONTEXT;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->ep_attr->protocol = protocol;
    hints->tx_attr->op_flags = FI_INJECT_COMPLETE;
    hints->tx_attr->size = hints->rx_attr->size = queue_size;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->control_progress = hints->domain_attr->data_progress = progress;
    return hints;
}

static struct fi_info *mercury_hints(void)
{
    return ask_as_mercury(FI_PROTO_XNET, FI_PROGRESS_MANUAL, 512);
}

/* Mercury, with the address of the first interface that the provider names, as a program that looks for interfaces. */
static struct fi_info *mercury_interface_hints(void)
{
    struct fi_info *hints = mercury_hints(), *scan = fi_allocinfo(), *found;

    scan->fabric_attr->prov_name = strdup(program->provider);
    MUST(fi_getinfo(FI_VERSION(1, 7), NULL, NULL, 0, scan, &found));
    require(found->src_addrlen == sizeof(struct sockaddr_in), "an address of this host", 0);
    hints->src_addr = malloc(found->src_addrlen);
    memcpy(hints->src_addr, found->src_addr, found->src_addrlen);
    hints->src_addrlen = found->src_addrlen;
    fi_freeinfo(found);
    fi_freeinfo(scan);
    return hints;
}

static struct fi_info *mercury_rxm_hints(void)
{
    return ask_as_mercury(FI_PROTO_RXM, FI_PROGRESS_MANUAL, 0);
}

static struct fi_info *mercury_sockets_hints(void)
{
    return ask_as_mercury(FI_PROTO_SOCK_TCP, FI_PROGRESS_AUTO, 0);
}

/* The Rust crate dma-libfabric. */
static struct fi_info *dma_libfabric_hints(void)
{
    struct fi_info *hints = new_hints(FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE);

    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    return hints;
}

/* NIXL, which looks for devices first, then asks for each by its name. */
static struct fi_info *nixl_hints(void)
{
    struct fi_info *hints = new_hints(FI_MSG | FI_RMA | FI_LOCAL_COMM | FI_REMOTE_COMM), *found;

    hints->mode = FI_CONTEXT;
    /* All modes but the two of old, as fi_info asks. */
    hints->domain_attr->mr_mode = ~3;
    found = query(fi_dupinfo(hints));
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED;
    hints->domain_attr->name = strdup(found->domain_attr->name);
    hints->domain_attr->threading = FI_THREAD_COMPLETION;
    fi_freeinfo(found);
    hints->caps |= FI_HMEM;
    require_unmet(FI_VERSION(1, 18), hints);
    hints->caps &= ~FI_HMEM;
    return hints;
}

static struct fid_mr *register_region(void *start, uint64_t access, uint64_t key)
{
    struct fid_mr *mr;

    if (session.info->domain_attr->mr_mode & FI_MR_PROV_KEY)
        key = 0;
    MUST(fi_mr_reg(session.domain, start, LEN_BYTES, FI_SEND | FI_RECV | access, 0, key, 0, &mr, NULL));
    if (session.info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
        MUST(fi_mr_bind(mr, &session.endpoint->fid, 0));
        MUST(fi_mr_enable(mr));
    }
    return mr;
}

static void pass_message(int is_tagged)
{
    struct fid_ep *ep = session.endpoint;
    fi_addr_t peer = session.peers[1 - rank];
    void *out_desc = fi_mr_desc(out_mr), *in_desc = fi_mr_desc(in_mr);

    if (is_tagged) {
        MUST(fi_trecv(ep, in, LEN_BYTES, in_desc, FI_ADDR_UNSPEC, TAG, 0, &contexts[0]));
        POST(fi_tsend(ep, out, LEN_BYTES, out_desc, peer, TAG, &contexts[1]));
    } else {
        MUST(fi_recv(ep, in, LEN_BYTES, in_desc, FI_ADDR_UNSPEC, &contexts[0]));
        POST(fi_send(ep, out, LEN_BYTES, out_desc, peer, &contexts[1]));
    }
    await_completions(session.cq, 2);
    require(!memcmp(in, expected, LEN_BYTES), "another message", 0);
}

static void read_and_write(uint64_t caps)
{
    struct fid_ep *ep = session.endpoint;
    fi_addr_t peer = session.peers[1 - rank];
    int has_addresses = (session.info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC)) != 0;
    struct segment mine = { .key = fi_mr_key(memory_mr), .base = has_addresses ? (uintptr_t)memory : 0 };
    struct segment all[RANKS], *there = &all[1 - rank];

    exchange(&mine, sizeof mine, all);
    POST(fi_read(ep, in, LEN_BYTES, fi_mr_desc(in_mr), peer, there->base, there->key, &contexts[0]));
    await_completions(session.cq, 1);
    require(!memcmp(in, expected, LEN_BYTES), "other bytes", 0);
    barrier(session.cq);
    /* Charm++ asks for remote reads alone. */
    if (caps & FI_REMOTE_READ && !(caps & FI_REMOTE_WRITE))
        return;
    POST(fi_write(ep, out, LEN_BYTES, fi_mr_desc(out_mr), peer, there->base, there->key, &contexts[0]));
    await_completions(session.cq, 1);
    WAIT_UNTIL(!memcmp(memory, expected, LEN_BYTES), make_progress(session.cq));
}

void run_hinted(struct fi_info *hints)
{
    uint64_t caps = hints->caps;
    enum fi_threading threading = hints->domain_attr->threading;
    struct fi_info *info = query(hints);
    struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE };
    struct fi_av_attr av_attr = { .type = info->domain_attr->av_type };

    /* For an older tcp, NCCL's plugin asks more of its endpoints than of the provider. */
    for (struct fi_info *each = info; program->offered_as && each; each = each->next)
        each->caps |= FI_RMA;
    open_domain_of(&session, info);
    require(!threading || info->domain_attr->threading == threading, "the threading", info->domain_attr->threading);
    require(program->version >= FI_VERSION(1, 5) || info->domain_attr->mr_mode == FI_MR_BASIC ||
                info->domain_attr->mr_mode == FI_MR_SCALABLE,
            "a mode of memory of old", info->domain_attr->mr_mode);
    MUST(fi_cq_open(session.domain, &cq_attr, &session.cq, NULL));
    MUST(fi_av_open(session.domain, &av_attr, &session.av, NULL));
    MUST(fi_endpoint(session.domain, info, &session.endpoint, NULL));
    MUST(fi_ep_bind(session.endpoint, &session.cq->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_ep_bind(session.endpoint, &session.av->fid, 0));
    MUST(fi_enable(session.endpoint));
    insert_names(session.endpoint, session.av, session.peers);
    out_mr = register_region(out, caps & FI_RMA ? ACCESS : 0, 1);
    in_mr = register_region(in, caps & FI_RMA ? ACCESS : 0, 2);
    memory_mr = register_region(memory, caps & FI_RMA ? ACCESS : 0, 3);
    fill(out, LEN_BYTES, (unsigned)rank);
    fill(memory, LEN_BYTES, (unsigned)rank);
    fill(expected, LEN_BYTES, (unsigned)(1 - rank));

    if (caps & FI_MSG)
        pass_message(0);
    if (caps & FI_TAGGED)
        pass_message(1);
    if (caps & FI_RMA)
        read_and_write(caps);
    barrier(session.cq);
    CLOSE(out_mr);
    CLOSE(in_mr);
    CLOSE(memory_mr);
    close_session(&session);
}

/* Programs that ask for the version that is installed. */
#define INSTALLED UINT32_MAX

const struct program PROGRAMS[] = {
    { "openshmem", NULL, "homespun", FI_VERSION(1, 5), openshmem_hints },
    { "openshmem_manual", NULL, "homespun", FI_VERSION(1, 5), openshmem_manual_hints },
    { "mercury", "tcp", "tcp", FI_VERSION(1, 13), mercury_hints },
    { "mercury_interface", "tcp", "tcp", FI_VERSION(1, 13), mercury_interface_hints },
    { "mercury_rxm", "tcp", "tcp;ofi_rxm", FI_VERSION(1, 13), mercury_rxm_hints },
    { "mercury_sockets", "sockets", "sockets", FI_VERSION(1, 13), mercury_sockets_hints },
    { "gasnet", NULL, NULL, FI_VERSION(1, 5), gasnet_hints },
    { "lci", NULL, NULL, FI_VERSION(1, 6), lci_hints },
    { "rofi", NULL, NULL, FI_VERSION(1, 17), rofi_hints },
    { "charm", NULL, NULL, FI_VERSION(1, 0), charm_hints },
    { "libfabric_efa_rs", NULL, "homespun", INSTALLED, libfabric_efa_rs_hints },
    { "nccl", NULL, NULL, FI_VERSION(1, 6), nccl_hints },
    { "nccl_tcp", "tcp", NULL, FI_VERSION(1, 6), nccl_hints },
    { "ompi_mtl", NULL, NULL, FI_VERSION(1, 18), ompi_mtl_hints },
    { "ompi_btl", NULL, NULL, FI_VERSION(1, 18), ompi_btl_hints },
    { "nixl", "tcp", NULL, FI_VERSION(1, 18), nixl_hints },
    { "nixl_sockets", "sockets", NULL, FI_VERSION(1, 18), nixl_hints },
    { "dma_libfabric", "tcp", "tcp", INSTALLED, dma_libfabric_hints },
};
const size_t PROGRAM_COUNT = sizeof PROGRAMS / sizeof *PROGRAMS;
