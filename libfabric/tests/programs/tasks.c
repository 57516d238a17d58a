/* GASNet-EX: active messages beside puts and gets. Its endpoints for requests, for replies and for puts and gets have an
 * address vector each. */

#include "driver.h"

enum { MESSAGES = 300, MEDIUM_BYTES = 4096, BUFFER_BYTES = 65536, BUFFERS = 4, SEGMENT_BYTES = 1 << 20 };

static struct session session;
static char segment[SEGMENT_BYTES], local[SEGMENT_BYTES];

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
