/* Runtimes of tasks and of partitioned global memory: active messages beside puts and gets. */

#include "driver.h"

enum { MESSAGES = 300, MEDIUM_BYTES = 4096, BUFFER_BYTES = 65536, BUFFERS = 4, SEGMENT_BYTES = 1 << 20 };

static struct session session;
static char segment[SEGMENT_BYTES], local[SEGMENT_BYTES];

/* GASNet-EX: endpoints for requests, for replies and for puts and gets, with an address vector each. */

struct active_message {
    uint32_t number, len_bytes;
    char payload[MEDIUM_BYTES];
};

/* An endpoint for active messages, with buffers that receive many of them. */
struct port {
    struct fid_ep *endpoint;
    struct fid_av *av;
    struct fid_cq *received;
    fi_addr_t peers[RANKS_MAX];
    char buffers[BUFFERS][BUFFER_BYTES];
    struct fi_context contexts[BUFFERS];
    int count;
};

static struct port requests, replies;
static struct fid_cq *sent;
static struct fi_context sends[2 * MESSAGES];
static int send_count, completed_sends;

struct fi_info *gasnet_hints(void)
{
    struct fi_info *hints = new_hints(FI_RMA | FI_MSG | FI_MULTI_RECV);

    hints->mode = FI_CONTEXT;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->av_type = FI_AV_UNSPEC;
    hints->domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
    return hints;
}

static void post_buffer(struct port *port, int i)
{
    struct iovec iov = { .iov_base = port->buffers[i], .iov_len = BUFFER_BYTES };
    struct fi_msg message = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
                              .context = &port->contexts[i] };

    MUST(fi_recvmsg(port->endpoint, &message, FI_MULTI_RECV));
}

static void open_port(struct port *port, struct fi_info *info)
{
    size_t least = sizeof(struct active_message);

    MUST(fi_endpoint(session.domain, info, &port->endpoint, NULL));
    port->received = open_cq(session.domain, FI_CQ_FORMAT_DATA, FI_WAIT_NONE, 0);
    MUST(fi_ep_bind(port->endpoint, &sent->fid, FI_TRANSMIT));
    MUST(fi_ep_bind(port->endpoint, &port->received->fid, FI_RECV));
    MUST(fi_setopt(&port->endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
    port->av = open_av(session.domain, FI_AV_TABLE, (size_t)ranks);
    MUST(fi_ep_bind(port->endpoint, &port->av->fid, 0));
    MUST(fi_enable(port->endpoint));
}

static void poll_sends(void)
{
    struct fi_cq_entry entry;
    ssize_t result = fi_cq_read(sent, &entry, 1);

    require(result == 1 || result == -FI_EAGAIN, "a send failed", result);
    completed_sends += result == 1;
}

static void gasnet_poll(void);

static void send_message(struct port *port, size_t inject_bytes, uint32_t number, uint32_t len_bytes)
{
    static struct active_message messages[2 * MESSAGES];
    struct active_message *message = &messages[send_count];
    size_t total_bytes = offsetof(struct active_message, payload) + len_bytes;
    fi_addr_t peer = port->peers[1 - rank];

    message->number = number;
    message->len_bytes = len_bytes;
    fill(message->payload, len_bytes, number);
    if (total_bytes <= inject_bytes) {
        POST(poll_sends(), fi_inject(port->endpoint, message, total_bytes, peer));
        return;
    }
    POST(poll_sends(), fi_send(port->endpoint, message, total_bytes, NULL, peer, &sends[send_count]));
    send_count++;
}

/* Handles what has arrived: checks it, answers a request, and posts a used buffer again. */
static void poll_port(struct port *port)
{
    struct fi_cq_data_entry entry;
    ssize_t result = fi_cq_read(port->received, &entry, 1);

    require(result == 1 || result == -FI_EAGAIN, "a receive failed", result);
    if (result != 1)
        return;
    if (entry.flags & FI_RECV && entry.buf && entry.len) {
        struct active_message *message = entry.buf;

        require(entry.len == offsetof(struct active_message, payload) + message->len_bytes, "the length", 0);
        require_filled(message->payload, message->len_bytes, message->number);
        port->count++;
        if (port == &requests)
            send_message(&replies, session.info->tx_attr->inject_size, message->number, message->len_bytes);
    }
    if (entry.flags & FI_MULTI_RECV)
        post_buffer(port, (int)((struct fi_context *)entry.op_context - port->contexts));
}

static void gasnet_poll(void)
{
    poll_port(&requests);
    poll_port(&replies);
    poll_sends();
}

void run_gasnet(struct fi_info *hints)
{
    struct fi_info *again = fi_dupinfo(hints), *rma, *msg;
    struct fid_ep *endpoint;
    struct fid_mr *mr;
    struct segment mine, all[RANKS_MAX];

    /* The second answer has to be that of the same provider and domain, with keys of the program. */
    rma = query(hints);
    free(again->fabric_attr->prov_name);
    again->fabric_attr->prov_name = strdup(rma->fabric_attr->prov_name);
    again->domain_attr->name = strdup(rma->domain_attr->name);
    fi_freeinfo(rma);
    again->domain_attr->mr_mode &= ~FI_MR_PROV_KEY;
    open_domain(&session, fi_dupinfo(again));
    again->caps = FI_RMA;
    again->mode = 0;
    again->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    rma = query(fi_dupinfo(again));
    require(!(rma->mode & FI_CONTEXT), "contexts without a structure", 0);
    MUST(fi_endpoint(session.domain, rma, &endpoint, NULL));
    again->caps = FI_MSG | FI_MULTI_RECV;
    again->mode = FI_CONTEXT;
    again->tx_attr->op_flags = FI_INJECT_COMPLETE;
    msg = query(again);
    sent = open_cq(session.domain, FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE, 0);
    MUST(fi_ep_bind(endpoint, &sent->fid, FI_TRANSMIT | FI_RECV));
    open_port(&requests, msg);
    open_port(&replies, msg);
    session.av = open_av(session.domain, FI_AV_TABLE, (size_t)ranks);
    MUST(fi_ep_bind(endpoint, &session.av->fid, 0));
    MUST(fi_enable(endpoint));
    insert_names(requests.endpoint, requests.av, requests.peers);
    insert_names(replies.endpoint, replies.av, replies.peers);
    insert_names(endpoint, session.av, session.peers);
    for (int i = 0; i < BUFFERS; i++) {
        post_buffer(&requests, i);
        post_buffer(&replies, i);
    }
    MUST(fi_mr_reg(session.domain, segment, sizeof segment, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr,
                   NULL));
    bind_region(rma, mr, endpoint);
    mine = (struct segment){ .key = fi_mr_key(mr), .base = base_of(rma, segment) };
    exchange(&mine, sizeof mine, all);

    for (uint32_t i = 0; i < MESSAGES; i++) {
        send_message(&requests, msg->tx_attr->inject_size, i, i * 37 % MEDIUM_BYTES);
        gasnet_poll();
    }
    WAIT_UNTIL(requests.count == MESSAGES && replies.count == MESSAGES && completed_sends == send_count,
               gasnet_poll());
    send_count = completed_sends = 0;
    fill(local, SEGMENT_BYTES, (unsigned)rank);
    POST(gasnet_poll(), fi_write(endpoint, local, SEGMENT_BYTES, NULL, session.peers[1 - rank], all[1 - rank].base,
                                 all[1 - rank].key, NULL));
    WAIT_UNTIL(completed_sends == 1, gasnet_poll());
    memset(local, 0, SEGMENT_BYTES);
    POST(gasnet_poll(), fi_read(endpoint, local, SEGMENT_BYTES, NULL, session.peers[1 - rank], all[1 - rank].base,
                                all[1 - rank].key, NULL));
    WAIT_UNTIL(completed_sends == 2, gasnet_poll());
    require_filled(local, SEGMENT_BYTES, (unsigned)rank);
    barrier(sent);

    CLOSE(mr);
    CLOSE(endpoint);
    CLOSE(requests.endpoint);
    CLOSE(replies.endpoint);
    CLOSE(sent);
    CLOSE(requests.received);
    CLOSE(replies.received);
    CLOSE(requests.av);
    CLOSE(replies.av);
    fi_freeinfo(rma);
    fi_freeinfo(msg);
    close_session(&session);
}

/* LCI: one queue for all, posted packets that every message fills, puts with immediate data. */

struct fi_info *lci_hints(void)
{
    struct fi_info *hints = new_hints(FI_RMA | FI_MSG);

    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL |
                                  FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->tx_attr->inject_size = 64;
    return hints;
}

enum { LCI_PACKETS = 64, LCI_PACKET_BYTES = 8192, LCI_SENDS = 256 };

static char lci_packets[LCI_PACKETS][LCI_PACKET_BYTES];
static char lci_is_busy[LCI_SENDS];
static int lci_received, lci_sent, lci_signals;
static void *lci_desc;

static void lci_post(char *packet)
{
    POST(make_progress(session.cq), fi_recv(session.endpoint, packet, LCI_PACKET_BYTES, lci_desc, FI_ADDR_UNSPEC,
                                            packet));
}

static void lci_poll(void)
{
    struct fi_cq_data_entry entries[8];
    ssize_t count = read_entries(session.cq, entries, 8);

    for (ssize_t i = 0; i < count; i++) {
        struct fi_cq_data_entry *entry = &entries[i];

        if (entry->flags & FI_RECV) {
            require(entry->flags & FI_REMOTE_CQ_DATA, "a message without data", 0);
            require_filled(entry->op_context, entry->len, (unsigned)entry->data);
            lci_received++;
            lci_post(entry->op_context);
        } else if (entry->flags & FI_REMOTE_WRITE) {
            require(entry->data == 0xabcd, "other data", (long)entry->data);
            lci_signals++;
        } else {
            lci_sent++;
            *(char *)entry->op_context = 0;
        }
    }
}

void run_lci(struct fi_info *hints)
{
    struct segment mine, all[RANKS_MAX];
    struct fid_mr *mr, *packet_mr;
    int expected = 0;

    open_domain(&session, hints);
    require(session.info->domain_attr->cq_data_size >= 4, "too little data", 0);
    session.info->tx_attr->size = session.info->rx_attr->size = 1024;
    MUST(fi_endpoint(session.domain, session.info, &session.endpoint, NULL));
    session.cq = open_cq(session.domain, FI_CQ_FORMAT_DATA, FI_WAIT_NONE, 65536);
    MUST(fi_ep_bind(session.endpoint, &session.cq->fid, FI_TRANSMIT | FI_RECV));
    session.av = open_av(session.domain, FI_AV_MAP, 0);
    MUST(fi_ep_bind(session.endpoint, &session.av->fid, 0));
    MUST(fi_enable(session.endpoint));
    insert_names(session.endpoint, session.av, session.peers);

    struct iovec iovs[] = { { lci_packets, sizeof lci_packets }, { segment, sizeof segment } };
    struct fi_mr_attr attr = { .mr_iov = &iovs[0], .iov_count = 1, .iface = FI_HMEM_SYSTEM,
                               .access = FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_WRITE |
                                         FI_REMOTE_READ };
    MUST(fi_mr_regattr(session.domain, &attr, 0, &packet_mr));
    bind_region(session.info, packet_mr, session.endpoint);
    lci_desc = desc_of(session.info, packet_mr);
    attr.mr_iov = &iovs[1];
    attr.requested_key = session.info->domain_attr->mr_mode & FI_MR_PROV_KEY ? 0 : 1;
    MUST(fi_mr_regattr(session.domain, &attr, 0, &mr));
    bind_region(session.info, mr, session.endpoint);
    mine = (struct segment){ .key = fi_mr_key(mr), .base = base_of(session.info, segment) };
    exchange(&mine, sizeof mine, all);
    for (int i = 0; i < LCI_PACKETS; i++)
        lci_post(lci_packets[i]);

    for (int i = 0; i < LCI_SENDS; i++) {
        size_t len_bytes = i % 4 ? (size_t)(i * 31 % LCI_PACKET_BYTES) : (size_t)i % 64;
        char injected[64];
        struct iovec iov = { .iov_base = injected, .iov_len = len_bytes };
        struct fi_msg message = { .msg_iov = &iov, .iov_count = 1, .addr = session.peers[1 - rank],
                                  .data = (uint64_t)i };
        char *from = local + (i % 32) * LCI_PACKET_BYTES;

        /* The buffer of an earlier send is reused when that send has completed. */
        WAIT_UNTIL(i < 32 || !lci_is_busy[i - 32], lci_poll());
        lci_is_busy[i] = 1;
        message.context = &lci_is_busy[i];
        fill(i % 4 ? from : injected, len_bytes, (unsigned)i);
        if (i % 4)
            POST(lci_poll(), fi_senddata(session.endpoint, from, len_bytes, NULL, (uint64_t)i,
                                         session.peers[1 - rank], &lci_is_busy[i]));
        else
            POST(lci_poll(), fi_sendmsg(session.endpoint, &message,
                                        FI_INJECT | FI_COMPLETION | FI_REMOTE_CQ_DATA));
        expected++;
    }
    WAIT_UNTIL(lci_received == LCI_SENDS && lci_sent == expected, lci_poll());

    struct iovec iov = { .iov_base = local, .iov_len = SEGMENT_BYTES };
    struct fi_rma_iov place = { .addr = all[1 - rank].base, .len = SEGMENT_BYTES, .key = all[1 - rank].key };
    struct fi_msg_rma put = { .msg_iov = &iov, .iov_count = 1, .addr = session.peers[1 - rank],
                              .rma_iov = &place, .rma_iov_count = 1, .context = lci_is_busy, .data = 0xabcd };
    fill(local, SEGMENT_BYTES, (unsigned)rank);
    POST(lci_poll(), fi_writemsg(session.endpoint, &put, FI_COMPLETION | FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA));
    WAIT_UNTIL(lci_sent == expected + 1 && lci_signals == 1, lci_poll());
    require_filled(segment, SEGMENT_BYTES, (unsigned)(1 - rank));
    memset(local, 0, SEGMENT_BYTES);
    POST(lci_poll(), fi_readmsg(session.endpoint, &put, FI_COMPLETION));
    WAIT_UNTIL(lci_sent == expected + 2, lci_poll());
    require_filled(local, SEGMENT_BYTES, (unsigned)rank);
    barrier(session.cq);

    CLOSE(mr);
    CLOSE(packet_mr);
    close_session(&session);
}

/* Lamellar's rofi: counters for everything, on an endpoint that also has an event queue. */

struct fi_info *rofi_hints(void)
{
    struct fi_info *hints = new_hints(FI_RMA | FI_ATOMIC | FI_MSG);

    hints->mode = FI_CONTEXT;
    hints->addr_format = FI_FORMAT_UNSPEC;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->mr_mode = FI_MR_BASIC;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    return hints;
}

void run_rofi(struct fi_info *hints)
{
    struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
    struct fi_collective_attr collective = { .op = FI_ATOMIC_READ, .datatype = FI_UINT64 };
    struct fid_cntr *puts, *gets, *sends_done, *receives;
    struct segment mine, all[RANKS_MAX];
    struct fid_mr *mr;
    struct fid_eq *eq;
    uint64_t put_count = 0;

    session.info = query(hints);
    MUST(fi_fabric(session.info->fabric_attr, &session.fabric, NULL));
    MUST(fi_eq_open(session.fabric, &eq_attr, &eq, NULL));
    MUST(fi_domain(session.fabric, session.info, &session.domain, NULL));
    require(fi_query_collective(session.domain, FI_ALLGATHER, &collective, 0) != 0, "a collective", 0);
    puts = open_counter(session.domain, FI_WAIT_UNSPEC);
    gets = open_counter(session.domain, FI_WAIT_UNSPEC);
    sends_done = open_counter(session.domain, FI_WAIT_UNSPEC);
    receives = open_counter(session.domain, FI_WAIT_UNSPEC);
    session.cq = open_cq(session.domain, FI_CQ_FORMAT_CONTEXT, FI_WAIT_UNSPEC, 0);
    session.av = open_av(session.domain, session.info->domain_attr->av_type, 0);
    session.info->ep_attr->tx_ctx_cnt = 0;
    session.info->caps = FI_RMA | FI_WRITE | FI_READ | FI_REMOTE_WRITE | FI_REMOTE_READ;
    session.info->mode = session.info->tx_attr->mode = session.info->rx_attr->mode = 0;
    session.info->rx_attr->size = session.info->tx_attr->size = 1024;
    session.info->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    session.info->tx_attr->caps = session.info->caps;
    session.info->rx_attr->caps = FI_RECV;
    MUST(fi_endpoint(session.domain, session.info, &session.endpoint, NULL));
    MUST(fi_ep_bind(session.endpoint, &eq->fid, 0));
    MUST(fi_ep_bind(session.endpoint, &session.av->fid, 0));
    MUST(fi_ep_bind(session.endpoint, &puts->fid, FI_WRITE | FI_REMOTE_WRITE));
    MUST(fi_ep_bind(session.endpoint, &gets->fid, FI_READ | FI_REMOTE_READ));
    MUST(fi_ep_bind(session.endpoint, &sends_done->fid, FI_SEND));
    MUST(fi_ep_bind(session.endpoint, &receives->fid, FI_RECV));
    MUST(fi_ep_bind(session.endpoint, &session.cq->fid, FI_SELECTIVE_COMPLETION | FI_TRANSMIT | FI_RECV));
    MUST(fi_enable(session.endpoint));
    insert_names(session.endpoint, session.av, session.peers);
    MUST(fi_mr_reg(session.domain, segment, sizeof segment,
                   FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
    bind_region(session.info, mr, session.endpoint);
    mine = (struct segment){ .key = fi_mr_key(mr), .base = base_of(session.info, segment) };
    exchange(&mine, sizeof mine, all);

    struct segment *there = &all[1 - rank];
    fill(local, SEGMENT_BYTES, (unsigned)rank);
    for (uint64_t at = 0; at < 64; at += 8, put_count++)
        POST(make_progress(session.cq), fi_inject_write(session.endpoint, local + at, 8, session.peers[1 - rank],
                                                        there->base + at, there->key));
    POST(make_progress(session.cq), fi_write(session.endpoint, local + 64, SEGMENT_BYTES - 64, fi_mr_desc(mr),
                                             session.peers[1 - rank], there->base + 64, there->key, NULL));
    put_count++;
    /* The counter also counts the puts of the other rank. */
    MUST(fi_cntr_wait(puts, put_count, -1));
    barrier(session.cq);
    WAIT_UNTIL(fi_cntr_read(puts) == 2 * put_count, make_progress(session.cq));
    require_filled(segment, SEGMENT_BYTES, (unsigned)(1 - rank));
    memset(local, 0, SEGMENT_BYTES);
    POST(make_progress(session.cq), fi_read(session.endpoint, local, SEGMENT_BYTES, fi_mr_desc(mr),
                                            session.peers[1 - rank], there->base, there->key, NULL));
    WAIT_UNTIL(fi_cntr_read(gets) == 2, make_progress(session.cq));
    require_filled(local, SEGMENT_BYTES, (unsigned)rank);
    require(fi_cntr_readerr(puts) == 0 && fi_cntr_readerr(gets) == 0, "an operation failed", 0);
    barrier(session.cq);

    CLOSE(mr);
    CLOSE(session.endpoint);
    CLOSE(session.cq);
    session.endpoint = NULL;
    session.cq = NULL;
    CLOSE(puts);
    CLOSE(gets);
    CLOSE(sends_done);
    CLOSE(receives);
    CLOSE(session.av);
    session.av = NULL;
    CLOSE(eq);
    close_session(&session);
}
