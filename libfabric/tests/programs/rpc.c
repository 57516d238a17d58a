/* Remote procedure calls, as Mercury's over libfabric, and DAOS with CaRT, which opens several endpoints. */

#include "driver.h"

#include <netinet/in.h>
#include <poll.h>

enum { CALLS = 40, CLASSES_MAX = 2, BUFFERS = 2, BUFFER_BYTES = 32768, UNEXPECTED_BYTES = 4096, BULK_BYTES = 200000 };

/* A request. Its tag is that of the reply, and comes as data of the completion. */
struct request {
    char name[NAME_MAX_BYTES];
    uint64_t bulk_at, bulk_key;
    uint32_t number, len_bytes;
    char payload[];
};

struct reply {
    uint32_t number, sum;
};

/* One of Mercury's classes: a domain with an endpoint, whose queue is waited for through its descriptor. */
struct class {
    struct session session;
    int descriptor;
    struct fid_mr *mr, *bulk_mr;
    char name[NAME_MAX_BYTES];
    char buffers[BUFFERS][BUFFER_BYTES];
    struct fi_context contexts[BUFFERS];
    int posted;
    char bulk[BULK_BYTES], pulled[BULK_BYTES];
    struct reply expected, answer;
    int reply_arrived, sends_pending, pull_done;
};

static struct class classes[CLASSES_MAX];
static int class_count, served;
/* What an operation's context points to. */
static struct fi_context sent, replied, reply_expected, pull;

static struct fi_info *ask(uint32_t protocol, enum fi_progress progress, size_t tx_size, size_t rx_size)
{
    struct fi_info *hints = new_hints(FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_MULTI_RECV);

    hints->mode = FI_ASYNC_IOV | FI_CONTEXT;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->ep_attr->protocol = protocol;
    hints->tx_attr->op_flags = FI_INJECT_COMPLETE;
    hints->tx_attr->size = tx_size;
    hints->rx_attr->size = rx_size;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL |
                                  FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->control_progress = hints->domain_attr->data_progress = progress;
    return hints;
}

/* The address of the first interface that the provider names, as a program knows it that looks for interfaces. */
static void add_interface(struct fi_info *hints)
{
    struct fi_info *scan = fi_allocinfo(), *found;

    scan->fabric_attr->prov_name = strdup(program->provider);
    MUST(fi_getinfo(FI_VERSION(1, 7), NULL, NULL, 0, scan, &found));
    require(found->src_addrlen == sizeof(struct sockaddr_in), "an address of this host", 0);
    hints->src_addr = malloc(found->src_addrlen);
    memcpy(hints->src_addr, found->src_addr, found->src_addrlen);
    hints->src_addrlen = found->src_addrlen;
    fi_freeinfo(found);
    fi_freeinfo(scan);
}

struct fi_info *mercury_hints(void)
{
    return ask(FI_PROTO_XNET, FI_PROGRESS_MANUAL, 512, 512);
}

struct fi_info *mercury_interface_hints(void)
{
    struct fi_info *hints = mercury_hints();

    add_interface(hints);
    return hints;
}

struct fi_info *mercury_rxm_hints(void)
{
    return ask(FI_PROTO_RXM, FI_PROGRESS_MANUAL, 0, 0);
}

struct fi_info *mercury_sockets_hints(void)
{
    return ask(FI_PROTO_SOCK_TCP, FI_PROGRESS_AUTO, 0, 0);
}

struct fi_info *cart_hints(void)
{
    struct fi_info *hints = ask(FI_PROTO_XNET, FI_PROGRESS_MANUAL, 4096, 512);

    add_interface(hints);
    return hints;
}

struct fi_info *cart_rxm_hints(void)
{
    struct fi_info *hints = mercury_rxm_hints();

    add_interface(hints);
    return hints;
}

struct fi_info *cart_sockets_hints(void)
{
    struct fi_info *hints = mercury_sockets_hints();

    add_interface(hints);
    return hints;
}

static struct fid_mr *register_memory(struct class *class, void *memory, size_t len_bytes, uint64_t access)
{
    static uint64_t next_key = 1;
    struct iovec iov = { .iov_base = memory, .iov_len = len_bytes };
    int mr_mode = class->session.info->domain_attr->mr_mode;
    struct fi_mr_attr attr = { .mr_iov = &iov, .iov_count = 1, .access = access,
                               .requested_key = mr_mode & FI_MR_PROV_KEY ? 0 : next_key++ };
    struct fid_mr *mr;

    MUST(fi_mr_regattr(class->session.domain, &attr, 0, &mr));
    bind_region(class->session.info, mr, class->session.endpoint);
    return mr;
}

static void post_buffer(struct class *class, int i)
{
    struct iovec iov = { .iov_base = class->buffers[i], .iov_len = BUFFER_BYTES };
    void *desc = fi_mr_desc(class->mr);
    struct fi_msg message = { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
                              .context = &class->contexts[i] };

    MUST(fi_recvmsg(class->session.endpoint, &message, FI_MULTI_RECV));
    class->posted++;
}

static void open_class(struct class *class, struct fi_info *info, struct fid_fabric *fabric)
{
    size_t least = UNEXPECTED_BYTES, old, old_len_bytes = sizeof old, name_len_bytes = sizeof class->name;
    struct session *session = &class->session;

    session->info = fi_dupinfo(info);
    session->fabric = fabric;
    MUST(fi_domain(fabric, info, &session->domain, NULL));
    session->av = open_av(session->domain, FI_AV_UNSPEC, 0);
    MUST(fi_endpoint(session->domain, info, &session->endpoint, NULL));
    session->cq = open_cq(session->domain, FI_CQ_FORMAT_TAGGED, FI_WAIT_FD, 131072);
    MUST(fi_ep_bind(session->endpoint, &session->cq->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_ep_bind(session->endpoint, &session->av->fid, 0));
    MUST(fi_getopt(&session->endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &old, &old_len_bytes));
    MUST(fi_setopt(&session->endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
    MUST(fi_enable(session->endpoint));
    MUST(fi_getname(&session->endpoint->fid, class->name, &name_len_bytes));
    require(name_len_bytes <= sizeof class->name, "a long name", 0);
    MUST(fi_control(&session->cq->fid, FI_GETWAIT, &class->descriptor));
    class->mr = register_memory(class, class->buffers, sizeof class->buffers, FI_SEND | FI_RECV);
    class->bulk_mr = register_memory(class, class->bulk, sizeof class->bulk, FI_REMOTE_READ | FI_REMOTE_WRITE);
    for (int i = 0; i < BUFFERS; i++)
        post_buffer(class, i);
    insert_names(session->endpoint, session->av, session->peers);
}

static uint32_t sum_of(const char *bytes, size_t len_bytes)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < len_bytes; i++)
        sum = sum * 31 + (unsigned char)bytes[i];
    return sum;
}

static void progress(struct class *class, int waits);

/* Serves a request: gets the bulk data that it names, and replies. */
static void serve(struct class *class, const struct request *arrived, size_t len_bytes, uint64_t tag)
{
    static char copy[UNEXPECTED_BYTES];
    struct request *request = memcpy(copy, arrived, len_bytes);
    struct session *session = &class->session;
    struct iovec iov = { .iov_base = class->pulled, .iov_len = BULK_BYTES };
    struct fi_rma_iov place = { .addr = request->bulk_at, .len = BULK_BYTES, .key = request->bulk_key };
    struct fi_msg_rma get = { .msg_iov = &iov, .iov_count = 1, .rma_iov = &place, .rma_iov_count = 1,
                              .context = &pull };

    require(len_bytes == sizeof *request + request->len_bytes, "the length of a request", (long)len_bytes);
    require_filled(request->payload, request->len_bytes, request->number);
    require(fi_av_insert(session->av, request->name, 1, &get.addr, 0, NULL) == 1, "fi_av_insert", 0);
    class->pull_done = 0;
    POST((void)0, fi_readmsg(session->endpoint, &get, FI_COMPLETION));
    WAIT_UNTIL(class->pull_done, progress(class, 1));
    class->answer = (struct reply){ request->number, sum_of(class->pulled, BULK_BYTES) };
    class->sends_pending++;
    POST((void)0, fi_tsend(session->endpoint, &class->answer, sizeof class->answer, NULL, get.addr, tag, &replied));
    served++;
}

/* Handles completions. While a request is served, only its own operations are handled; others wait. */
static void handle(struct class *class, const struct fi_cq_tagged_entry *entry)
{
    struct fi_context *context = entry->op_context;

    if (context == &reply_expected)
        class->reply_arrived = 1;
    else if (context == &pull)
        class->pull_done = 1;
    else if (context == &sent || context == &replied)
        class->sends_pending--;
}

static int is_buffer(struct class *class, void *context)
{
    return context >= (void *)class->contexts && context < (void *)(class->contexts + BUFFERS);
}

static struct fi_cq_tagged_entry waiting[64];
static int waiting_count;

static void progress(struct class *class, int waits)
{
    struct fid *fids[] = { &class->session.cq->fid };
    struct pollfd ready = { .fd = class->descriptor, .events = POLLIN };
    struct fi_cq_tagged_entry entries[16];

    if (waits && fi_trywait(class->session.fabric, fids, 1) == 0)
        poll(&ready, 1, 100);
    ssize_t count = read_entries(class->session.cq, entries, 16);

    for (ssize_t i = 0; i < count; i++) {
        if (!is_buffer(class, entries[i].op_context)) {
            handle(class, &entries[i]);
            continue;
        }
        require(waiting_count < 64, "too many requests", 0);
        waiting[waiting_count++] = entries[i];
    }
}

static void serve_waiting(struct class *class)
{
    for (int i = 0; i < waiting_count; i++) {
        struct fi_cq_tagged_entry entry = waiting[i];

        if (entry.buf && entry.len)
            serve(class, entry.buf, entry.len, entry.data);
        if (entry.flags & FI_MULTI_RECV) {
            class->posted--;
            post_buffer(class, (int)((struct fi_context *)entry.op_context - class->contexts));
        }
    }
    waiting_count = 0;
}

static void call(struct class *class, uint32_t number)
{
    static char memory[UNEXPECTED_BYTES];
    struct request *request = (struct request *)memory;
    struct session *session = &class->session;
    uint64_t tag = 1000 + number;

    memcpy(request->name, class->name, NAME_MAX_BYTES);
    request->bulk_at = base_of(session->info, class->bulk);
    request->bulk_key = fi_mr_key(class->bulk_mr);
    request->number = number;
    request->len_bytes = number * 97 % (UNEXPECTED_BYTES - (uint32_t)sizeof *request);
    fill(request->payload, request->len_bytes, number);
    fill(class->bulk, BULK_BYTES, number);
    class->reply_arrived = 0;
    POST((void)0, fi_trecv(session->endpoint, &class->expected, sizeof class->expected, NULL,
                           session->peers[1 - rank], tag, 0, &reply_expected));
    class->sends_pending++;
    POST((void)0, fi_senddata(session->endpoint, request, sizeof *request + request->len_bytes, NULL, tag,
                              session->peers[1 - rank], &sent));
    while (!class->reply_arrived) {
        step = "the reply";
        progress(class, 1);
        serve_waiting(class);
    }
    require(class->expected.number == number, "another reply", 0);
    require(class->expected.sum == sum_of(class->bulk, BULK_BYTES), "other bulk data", 0);
}

static void close_class(struct class *class)
{
    struct session *session = &class->session;

    /* Buffers are cancelled before the endpoint is closed, and their cancellation is awaited. */
    for (int i = 0; i < BUFFERS; i++)
        MUST(fi_cancel(&session->endpoint->fid, &class->contexts[i]));
    for (int i = 0; i < BUFFERS; i++)
        require(is_buffer(class, next_failure(session->cq, FI_ECANCELED)), "another operation", 0);
    CLOSE(class->bulk_mr);
    CLOSE(class->mr);
    CLOSE(session->endpoint);
    CLOSE(session->cq);
    CLOSE(session->av);
    CLOSE(session->domain);
    fi_freeinfo(session->info);
}

static void run_classes(struct fi_info *hints, int count)
{
    struct fi_info *info = query(hints);
    struct fid_fabric *fabric;

    MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
    class_count = count;
    for (int i = 0; i < count; i++)
        open_class(&classes[i], info, fabric);
    for (int i = 0; i < count; i++) {
        served = 0;
        for (uint32_t number = 0; number < CALLS; number++)
            call(&classes[i], number);
        while (served < CALLS || classes[i].sends_pending) {
            step = "requests and sends";
            progress(&classes[i], 1);
            serve_waiting(&classes[i]);
        }
        barrier(classes[i].session.cq);
    }
    for (int i = 0; i < count; i++)
        close_class(&classes[i]);
    MUST(fi_close(&fabric->fid));
    fi_freeinfo(info);
}

void run_mercury(struct fi_info *hints)
{
    run_classes(hints, 1);
}

void run_cart(struct fi_info *hints)
{
    run_classes(hints, CLASSES_MAX);
}
